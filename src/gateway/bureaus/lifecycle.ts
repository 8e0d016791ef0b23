// The states of a Bureau and what they allow. A Bureau that is not active serves nobody, and says why.
import { Problem } from '../../kernel/problem.ts';

export type BureauState = 'active' | 'paused' | 'archived';

/** Throws 403 `bureau_paused` or `bureau_archived` unless the Bureau is active. */
export function refuseUnlessActive(state: BureauState): void {
  if (state === 'paused') throw new Problem('forbidden', 'bureau_paused', 'This Bureau is paused; its tokens and logins work again once it is active.');
  if (state === 'archived') throw new Problem('forbidden', 'bureau_archived', 'This Bureau is archived; its tokens and logins will not work again.');
}
