// The interface of the Bureaus for other modules.
export { bureaus, type Bureaus } from './bureaus.ts';
export type { TokenOwner } from './current-bureau.ts';
export { bureausStore, type Bureau, type BureausStore, type SqlFragment } from './store.ts';
export type { BureauState } from './lifecycle.ts';
