// The accounts of a gateway: logins, user tokens, API keys, e-mail accounts and users. It also
// authenticates user tokens.
import { createBackground, type Background } from '../../kernel/background.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { invalidToken, Problem } from '../../kernel/problem.ts';
import { parseToken, tokenDigest } from '../../kernel/secrets/secret.ts';
import {
  createConcurrencyLimit,
  defaultConcurrency,
  type ConcurrencyLimit,
} from '../../kernel/secrets/concurrency-limit.ts';
import type { Bureau, BureauState } from '../bureaus/index.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { apiKeys } from './api-keys.ts';
import { createAttemptLimits, type AttemptLimits, type AttemptLimitSettings } from './core/attempt-limits.ts';
import { deviceLoginHandlers } from './device/handlers.ts';
import { createIdentityCache, type IdentityRecord } from './identity-cache.ts';
import { createLoginAttempts, defaultLoginTimes, type LoginTimes } from './login/attempts.ts';
import { appCodeHandlers } from './login/app-codes.ts';
import { createCallback } from './login/callback.ts';
import { createEmailVerification } from './login/email-verification.ts';
import { loginHandlers } from './login/handlers.ts';
import { passwordChange } from './login/password-change.ts';
import { registration } from './login/registration.ts';
import { createResultReader } from './login/result.ts';
import {
  type AccountsHandlers,
  type AuditPort,
  type ChangesPort,
  type CreditsPort,
  type EnvReader,
  type MachinesPort,
  noStops,
  type PaidCallStops,
  type RequireActiveBureau,
} from './core/ports.ts';
import type { Mailer } from './providers/code-mail.ts';
import { emailCodeProvider } from './providers/email-code.ts';
import { localLogin } from './providers/local-login.ts';
import { createOpenId } from './providers/openid.ts';
import { passwordProvider } from './providers/password-login.ts';
import { createPasswords, type Passwords } from './providers/passwords.ts';
import type { LoginProvider, Person, RedirectProvider } from './providers/provider.ts';
import { thirdParties, thirdPartyKeys } from './providers/third-parties.ts';
import { serializeUser } from './core/serialize-user.ts';
import type { AccountsStore } from './core/store.ts';
import type { AccountsStores } from './stores.ts';
import { tokens } from './tokens.ts';
import { newUserToken } from './core/user-token.ts';
import { users } from './users.ts';

export interface AccountsOptions {
  stores: AccountsStores;
  bureaus: {
    find(bureauId: string): Promise<Bureau | null>;
    /** Throws 403 for a Bureau that is paused or archived. */
    refuseUnlessActive(state: BureauState): void;
  };
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  fetch: typeof globalThis.fetch;
  /** The credentials of third parties; read for every login. */
  env: EnvReader;
  mail: Mailer & { env?: Service['env'] };
  audit: AuditPort;
  changes: ChangesPort;
  credits: CreditsPort;
  machines: MachinesPort;
  /**
   * Stops of paid calls after usage alarms: user records show when a stop ends, and unblocking a user
   * lifts it. When absent, no user has a stop.
   */
  stops?: PaidCallStops;
  /** Whether the local login is offered now; see `mayLogInLocally`. */
  localLogin: () => boolean;
  /**
   * The address under which browsers reach this server; null while it is not known.
   * Never taken from a request.
   */
  baseUrl: () => string | null;
  times?: Partial<LoginTimes>;
  attemptLimits?: Partial<AttemptLimitSettings>;
  /** Rounds of PBKDF2 for new digests. */
  passwordRounds?: number;
  /** Limits concurrent password checks. Share one among everything in the process that checks passwords. */
  concurrencyLimit?: ConcurrencyLimit;
  /** One deadline for all requests to a third party within one login step. */
  providerDeadlineMs?: number;
}

export interface IssuedToken {
  /** The credential. It is not stored and cannot be read again. */
  userToken: string;
  tokenId: string;
  userId: string;
  bureauId: string;
  expiresAt: Date;
}

export interface Accounts extends Service<'accounts'> {
  /**
   * The user of a token, or null for an invalid one. Throws 403 `bureau_paused` or
   * `bureau_archived`. Checks the token's shape and checksum before it queries the database.
   */
  identify(bearer: string): Promise<Extract<Identity, { kind: 'user' }> | null>;
  /** When the token expires; null for an unknown token. */
  findTokenExpiry(tokenId: string): Promise<Date | null>;
  /**
   * Issues a token without a login, for a command on this machine. Creates the user when the person is new.
   */
  issueUserToken(request: {
    bureauId: string;
    person: Person;
    name?: string;
    ttlSeconds?: number;
  }): Promise<IssuedToken>;
}

const callbackPath = '/v1/accounts/oauth/callback';
const loginPagePath = '/login';

/** The dependencies that the parts of the slice share. */
interface Shared {
  options: AccountsOptions;
  store: AccountsStore;
  times: LoginTimes;
  attemptLimits: AttemptLimits;
  passwords: Passwords;
  background: Background;
  requireActiveBureau: RequireActiveBureau;
}

export function accounts(options: AccountsOptions): Accounts {
  const { bureaus, log, mail, audit, changes, credits, machines, stores } = options;
  const store = withCreditsAccounts(stores.accounts, credits);
  const { loginAttempts } = stores;
  const times = { ...defaultLoginTimes, ...options.times };
  const background = createBackground(log);
  const attemptLimits = createAttemptLimits(stores.attemptLimits, options.attemptLimits);
  const passwords = createPasswords({
    store,
    attemptLimits,
    concurrencyLimit: options.concurrencyLimit ?? createConcurrencyLimit(defaultConcurrency),
    ...(options.passwordRounds !== undefined && { rounds: options.passwordRounds }),
  });
  const requireActiveBureau: RequireActiveBureau = async (bureauId) => {
    const bureau = await bureaus.find(bureauId);
    if (!bureau)
      throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau_id' });
    bureaus.refuseUnlessActive(bureau.state);
    return bureau;
  };
  const shared = { options, store, times, attemptLimits, passwords, background, requireActiveBureau };
  const tokenDependencies = { store, loginAttempts, audit, changes };

  return {
    name: 'accounts',
    title: 'Accounts',
    env: [...thirdPartyKeys, ...(mail.env ?? [])],
    handlers: {
      ...createLogin(shared),
      ...createEmailAccounts(shared),
      ...createDeviceLogins(shared),
      ...tokens({ ...tokenDependencies, machines, requireActiveBureau }),
      ...apiKeys({ store, audit, changes, credits }),
      ...users({ ...tokenDependencies, attemptLimits, stops: options.stops ?? noStops }),
      'accounts.getMe': createGetMe(store, bureaus),
    },
    identify: createIdentify(shared),
    async findTokenExpiry(tokenId) {
      return (await store.findToken(tokenId))?.expiresAt ?? null;
    },
    async issueUserToken({ bureauId, person, name = null, ttlSeconds = times.tokenSeconds }) {
      await requireActiveBureau(bureauId);
      return store.tx(async (queries, tx) => {
        const { userId, state } = await store.ensureUser(tx, bureauId, person, id('usr'));
        if (state !== 'active')
          throw new Problem('conflict', 'conflict', 'This user is blocked and cannot get a token.');
        const { userToken, record } = newUserToken({ userId, kind: 'user', name, ttlSeconds });
        const { expiresAt } = await queries.insertToken(record);
        return { userToken, tokenId: record.tokenId, userId, bureauId, expiresAt };
      });
    },
    close: () => background.untilSettled(),
  };
}

/** Opens a credits account in the transaction that creates a user. */
function withCreditsAccounts(store: AccountsStore, credits: CreditsPort): AccountsStore {
  return {
    ...store,
    async ensureUser(tx, bureauId, person, newUserId) {
      const user = await store.ensureUser(tx, bureauId, person, newUserId);
      const { userId, startingCredits } = user;
      if (user.isNew) await credits.openAccount(tx, { userId, bureauId, startingCredits });
      return user;
    },
  };
}

function createLogin(shared: Shared): ReturnType<typeof loginHandlers> & ReturnType<typeof appCodeHandlers> {
  const { options, store, times, attemptLimits, background, requireActiveBureau } = shared;
  const { bureaus, stores } = options;
  const { loginAttempts, oneTimeTokens } = stores;
  const { refuseUnlessActive } = bureaus;
  const addressOf = (path: string) => {
    const base = options.baseUrl();
    return base === null ? null : base.replace(/\/+$/, '') + path;
  };
  const callbackUrl = () => addressOf(callbackPath);
  const redirectProviders = createRedirectProviders(options, { hasCallback: () => callbackUrl() !== null });
  const attempts = createLoginAttempts({
    store,
    loginAttempts,
    oneTimeTokens,
    times,
    callbackUrl,
    refuseUnlessActive,
  });
  const callback = createCallback({
    attempts,
    loginAttempts,
    oneTimeTokens,
    findBureau: bureaus.find,
    refuseUnlessActive,
    redirectProvider: (providerId): RedirectProvider | undefined =>
      redirectProviders.find((provider) => provider.id === providerId),
    confirmSeconds: times.attemptSeconds,
  });
  const handlers = loginHandlers({
    providers: [...createLocalProviders(shared), ...redirectProviders],
    attempts,
    readResult: createResultReader({ store, loginAttempts, times, refuseUnlessActive }),
    callback,
    loginAttempts,
    oneTimeTokens,
    attemptLimits,
    background,
    requireActiveBureau,
    loginPageUrl: () => addressOf(loginPagePath),
  });
  const appCodes = appCodeHandlers({
    store,
    loginAttempts,
    oneTimeTokens,
    times,
    requireActiveBureau,
    refuseUnlessActive,
  });
  return { ...handlers, ...appCodes };
}

/** The providers that need no third party, in the order in which they are listed. */
function createLocalProviders({ options, times, attemptLimits, passwords }: Shared): LoginProvider[] {
  const { mail } = options;
  return [
    { ...localLogin, available: (context) => options.localLogin() && localLogin.available(context) },
    passwordProvider({ passwords, mail }),
    emailCodeProvider({ attemptLimits, mail, minutes: Math.ceil(times.attemptSeconds / 60) }),
  ];
}

function createRedirectProviders(
  { env, fetch, clock, providerDeadlineMs }: AccountsOptions,
  { hasCallback }: { hasCallback: () => boolean },
): RedirectProvider[] {
  const openId = createOpenId({
    fetch,
    clock,
    ...(providerDeadlineMs !== undefined && { deadlineMs: providerDeadlineMs }),
  });
  return thirdParties({ env, openId, hasCallback });
}

function createDeviceLogins({ options, store, times, background, requireActiveBureau }: Shared) {
  const { audit, credits, stores, baseUrl, bureaus } = options;
  const { deviceLogins, attemptLimits } = stores;
  return deviceLoginHandlers({
    store,
    deviceLogins,
    attemptLimits,
    audit,
    credits,
    background,
    baseUrl,
    times,
    requireActiveBureau,
    refuseUnlessActive: bureaus.refuseUnlessActive,
  });
}

function createEmailAccounts({
  options,
  store,
  times,
  attemptLimits,
  passwords,
  background,
  requireActiveBureau,
}: Shared): ReturnType<typeof registration> & ReturnType<typeof passwordChange> {
  const { mail, audit, changes, stores } = options;
  const verification = createEmailVerification({
    oneTimeTokens: stores.oneTimeTokens,
    attemptLimits,
    mail,
    requireActiveBureau,
    ttlSeconds: times.attemptSeconds,
  });
  const { loginAttempts } = stores;
  return {
    ...registration({ store, passwords, verification, mail }),
    ...passwordChange({
      store,
      loginAttempts,
      passwords,
      verification,
      attemptLimits,
      audit,
      changes,
      background,
    }),
  };
}

function createGetMe(
  store: AccountsStore,
  bureaus: AccountsOptions['bureaus'],
): AccountsHandlers['accounts.getMe'] {
  return async ({ identity: { userId, bureauId, tokenId } }) => {
    const [user, token, bureau] = await Promise.all([
      store.findUser(userId),
      store.findToken(tokenId),
      bureaus.find(bureauId),
    ]);
    // The user, token or Bureau was deleted after the request was authenticated.
    if (!user || !token || !bureau) throw invalidToken();
    return {
      status: 200,
      body: {
        user: serializeUser(user),
        bureau: {
          bureau_id: bureau.bureauId,
          name: bureau.name,
          state: bureau.state,
          server_url: bureau.serverUrl,
        },
        token: { token_id: token.tokenId, name: token.name, expires_at: token.expiresAt.toISOString() },
      },
    };
  };
}

function createIdentify({ options, store, background }: Shared): Accounts['identify'] {
  const { bureaus, changes, clock } = options;
  const identities = createIdentityCache({ generation: () => changes.generation(), clock });

  async function findIdentity(digest: Buffer): Promise<IdentityRecord | null> {
    const bearer = await store.findBearer(digest);
    if (!bearer || bearer.userState !== 'active') return null;
    bureaus.refuseUnlessActive(bearer.bureauState);
    const { userId, bureauId, tokenId, remainingMs } = bearer;
    const models = intersectModels(bearer.models, bearer.bureauModels);
    if (bearer.isUseStale) background.run(tokenId, () => store.recordUse(tokenId));
    return {
      identity: { kind: 'user', userId, bureauId, tokenId, ...(models === null ? {} : { models }) },
      remainingMs,
    };
  }

  return (bearer) =>
    identities.get(bearer, async () =>
      parseToken(bearer) === 'usr' ? findIdentity(tokenDigest(bearer)) : null,
    );
}

/** The models that both lists allow; null allows all. */
function intersectModels(
  tokenModels: readonly string[] | null,
  bureauModels: readonly string[] | null,
): readonly string[] | null {
  if (tokenModels === null || bureauModels === null) return tokenModels ?? bureauModels;
  return tokenModels.filter((model) => bureauModels.includes(model));
}
