// The interface of the environment for other modules.
export { env, type Env, type EnvOptions } from './env.ts';
export { readMasterKeyIds, requireMasterKeys, unlock } from './master-key.ts';
export { findSealingKeys, type RewrapResult, type SealingKeys } from './rotation.ts';
export type { EnvReader } from './snapshot.ts';
export { envStore, type EnvStore } from './store.ts';
