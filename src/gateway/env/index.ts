// The door of the environment: the factory, its store, and the way to the master key before a server starts.
export { env, type Env, type EnvNeeds } from './env.ts';
export { masterKeyIds, requireMasterKeys, unlock } from './master-key.ts';
export { sealingKeys, type Rewrapped, type SealingKeys } from './rotation.ts';
export type { EnvReader } from './snapshot.ts';
export { envStore, type EnvStore } from './store.ts';
