// States of a Bureau and their transitions. Requests for a paused or archived Bureau
// get 403 with the reason. Archived is final.
import { Problem } from '../../kernel/problem.ts';

export type BureauState = 'active' | 'paused' | 'archived';

/** Throws 403 `bureau_paused` or `bureau_archived` unless the Bureau is active. */
export function refuseUnlessActive(state: BureauState): void {
  if (state === 'paused')
    throw new Problem(
      'forbidden',
      'bureau_paused',
      'This Bureau is paused; its tokens and logins work again once it is active.',
    );
  if (state === 'archived')
    throw new Problem(
      'forbidden',
      'bureau_archived',
      'This Bureau is archived; its tokens and logins will not work again.',
    );
}

/** Throws 409 `bureau_archived` for an archived Bureau, which can no longer be changed. */
export function refuseArchived(state: BureauState): void {
  if (state === 'archived') {
    throw new Problem(
      'conflict',
      'bureau_archived',
      'This Bureau is archived and does not change any more.',
      { param: 'bureau_id' },
    );
  }
}

/** False when the Bureau is already in the state. Throws 409 `bureau_archived` when it is archived. */
export function changesState(currentState: BureauState, nextState: BureauState): boolean {
  if (currentState === nextState) return false;
  refuseArchived(currentState);
  return true;
}

export function bureauNotFound(): Problem {
  return new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau_id' });
}
