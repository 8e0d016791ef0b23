export { bureaus, type Bureaus, type TokenOwner } from './bureaus.ts';
export { bureausStore, type Bureau, type BureausStore, type SqlFragment } from './store.ts';
export type { BureauState } from './lifecycle.ts';
