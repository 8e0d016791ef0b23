// The door of the Bureaus: the factory, its store, and the types that others may name.
export { bureaus, type Bureaus, type BureausNeeds, type ExaminedToken } from './bureaus.ts';
export { bureausStore, type Bureau, type BureausStore, type SqlFragment } from './store.ts';
export type { BureauState } from './lifecycle.ts';
