// Opens all stores of the accounts for the composition root.
import type { Database } from '../../kernel/data/database.ts';
import { attemptLimitsStore, type AttemptLimitsStore } from './core/attempt-limits-store.ts';
import { deviceLoginStore, type DeviceLoginStore } from './device/store.ts';
import { loginAttemptStore, type LoginAttemptStore } from './login/store.ts';
import { oneTimeTokenStore, type OneTimeTokenStore } from './login/one-time-tokens-store.ts';
import { accountsStore, type AccountsStore, type BureauColumns } from './core/store.ts';

export interface AccountsStores {
  accounts: AccountsStore;
  loginAttempts: LoginAttemptStore;
  oneTimeTokens: OneTimeTokenStore;
  attemptLimits: AttemptLimitsStore;
  deviceLogins: DeviceLoginStore;
}

export function accountsStores(database: Database, bureaus: BureauColumns): AccountsStores {
  return {
    accounts: accountsStore(database, bureaus),
    loginAttempts: loginAttemptStore(database, bureaus),
    oneTimeTokens: oneTimeTokenStore(database),
    attemptLimits: attemptLimitsStore(database),
    deviceLogins: deviceLoginStore(database, bureaus),
  };
}
