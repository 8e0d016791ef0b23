// The states of a Bureau, the moves between them, and what they allow. A Bureau that is not active serves
// nobody, and says why; an archived one never changes again.
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

/** Throws 409 `bureau_archived` when nothing may change any more. */
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

/** Whether the move changes anything; a repeated one does not. Throws 409 `bureau_archived` for a move out of the final state. */
export function changesState(from: BureauState, to: BureauState): boolean {
  if (from === to) return false;
  refuseArchived(from);
  return true;
}
