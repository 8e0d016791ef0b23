// The accounts: logins, user tokens, e-mail accounts and users. It owns the answer to whose token a bearer
// credential is: the database's, kept only while nothing has changed that could make it another one.
import { createBackground } from '../../kernel/background.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { parseToken, tokenDigest } from '../../kernel/secrets/secret.ts';
import {
  createConcurrencyLimit,
  defaultConcurrency,
  type ConcurrencyLimit,
} from '../../kernel/secrets/concurrency-limit.ts';
import type { Bureau, BureauState } from '../bureaus/index.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import type { Mailer } from './providers/code-mail.ts';
import { createPasswords } from './providers/passwords.ts';
import { registration } from './login/registration.ts';
import { createIdentityCache } from './identity-cache.ts';
import { createGuesses, type GuessBudgets } from './attempt-limits.ts';
import { createAttempts, defaultLoginTimes, type LoginTimes } from './login/attempts.ts';
import { createCallback } from './login/callback.ts';
import { loginHandlers } from './login/handlers.ts';
import type { AuditPort, ChangesPort, CreditsPort, EnvReader, MachinesPort } from './ports.ts';
import { emailCodeProvider } from './providers/email-code.ts';
import { localLogin } from './providers/local-login.ts';
import { createOpenId } from './providers/openid.ts';
import { passwordProvider } from './providers/password-login.ts';
import type { LoginProvider, Person } from './providers/provider.ts';
import { thirdParties, thirdPartyKeys } from './providers/third-parties.ts';
import type { AccountsStore } from './store.ts';
import type { AccountsStores } from './stores.ts';
import { tokens } from './tokens.ts';
import { newUserToken } from './user-token.ts';
import { users } from './users.ts';
import { wireUser } from './serialize-user.ts';

export interface AccountsNeeds {
  stores: AccountsStores;
  /** Whom users belong to. */
  bureaus: {
    find(bureauId: string): Promise<Bureau | null>;
    refuseUnlessActive(state: BureauState): void;
  };
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  fetch: typeof globalThis.fetch;
  /** The credentials of third parties, as they are now. */
  env: EnvReader;
  mail: Mailer & { env?: Service['env'] };
  audit: AuditPort;
  changes: ChangesPort;
  credits: CreditsPort;
  machines: MachinesPort;
  /** Whether the local login exists now; `mayLogInLocally` says so for a server's settings. */
  localLogin: () => boolean;
  /** The address under which browsers reach this server, without a trailing slash; null while that is not known. Never taken from a request. */
  baseUrl: () => string | null;
  times?: Partial<LoginTimes>;
  guesses?: Partial<GuessBudgets>;
  /** Rounds of PBKDF2 for new digests. */
  passwordRounds?: number;
  /** Where passwords wait for their check; the same one wherever this process checks any. */
  turnstile?: ConcurrencyLimit;
  /** For all that one step asks of a third party. */
  providerDeadlineMs?: number;
}

export interface IssuedToken {
  /** The credential; nobody can read it again. */
  userToken: string;
  tokenId: string;
  userId: string;
  bureauId: string;
  expiresAt: Date;
}

export interface Accounts extends Service<'accounts'> {
  /**
   * The user whose token it is, or null when it is nobody's. Throws 403 `bureau_paused` or
   * `bureau_archived`. A text without a token's shape and checksum costs no look into the database.
   */
  identify(bearer: string): Promise<Extract<Identity, { kind: 'user' }> | null>;
  /** When the token ends; null when it is nobody's. */
  tokenEnd(tokenId: string): Promise<Date | null>;
  /** A token without a login, for a command of this machine's owner. The user is made when the person is new to the Bureau. */
  issueUserToken(request: {
    bureauId: string;
    person: Person;
    name?: string;
    ttlSeconds?: number;
  }): Promise<IssuedToken>;
}

const callbackPath = '/v1/accounts/oauth/callback';

export function accounts(needs: AccountsNeeds): Accounts {
  const { bureaus, log, mail, audit, changes, env } = needs;
  const { accounts: records, attempts: attemptStore, tickets, guesses: guessStore } = needs.stores;
  // Wherever a user is made, the balance is made with it.
  const store: AccountsStore = {
    ...records,
    async ensureUser(tx, bureauId, person, newUserId) {
      const user = await records.ensureUser(tx, bureauId, person, newUserId);
      if (user.isNew)
        await needs.credits.openAccount(tx, {
          userId: user.userId,
          bureauId,
          startingCredits: user.startingCredits,
        });
      return user;
    },
  };
  const times = { ...defaultLoginTimes, ...needs.times };
  const background = createBackground(log);
  const identities = createIdentityCache({ generation: () => changes.generation(), clock: needs.clock });
  const guesses = createGuesses(guessStore, needs.guesses);
  const turnstile = needs.turnstile ?? createConcurrencyLimit(defaultConcurrency);
  const passwords = createPasswords({
    store,
    guesses,
    turnstile,
    ...(needs.passwordRounds !== undefined && { rounds: needs.passwordRounds }),
  });
  const openId = createOpenId({
    fetch: needs.fetch,
    clock: needs.clock,
    ...(needs.providerDeadlineMs !== undefined && { deadlineMs: needs.providerDeadlineMs }),
  });
  const callbackUrl = () => {
    const base = needs.baseUrl();
    return base === null ? null : base.replace(/\/+$/, '') + callbackPath;
  };

  const providers: readonly LoginProvider[] = [
    { ...localLogin, available: (context) => needs.localLogin() && localLogin.available(context) },
    passwordProvider({ passwords, mail }),
    emailCodeProvider({ guesses, mail, minutes: Math.ceil(times.attemptSeconds / 60) }),
    ...thirdParties({ env, openId, hasCallback: () => callbackUrl() !== null }),
  ];
  const attempts = createAttempts({
    store,
    attempts: attemptStore,
    tickets,
    times,
    callbackUrl,
    refuseUnlessActive: bureaus.refuseUnlessActive,
  });
  const callback = createCallback({
    attempts,
    attemptStore,
    tickets,
    findBureau: bureaus.find,
    refuseUnlessActive: bureaus.refuseUnlessActive,
    redirectProvider: (providerId) =>
      providers.find((one) => one.kind === 'redirect' && one.id === providerId) as ReturnType<
        Parameters<typeof createCallback>[0]['redirectProvider']
      >,
    confirmSeconds: times.attemptSeconds,
  });

  async function servingBureau(bureauId: string): Promise<Bureau> {
    const bureau = await bureaus.find(bureauId);
    if (!bureau)
      throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau_id' });
    bureaus.refuseUnlessActive(bureau.state);
    return bureau;
  }

  return {
    name: 'accounts',
    title: 'Accounts',
    env: [...thirdPartyKeys, ...(mail.env ?? [])],
    handlers: {
      ...loginHandlers({
        providers,
        attempts,
        attemptStore,
        tickets,
        callback,
        guesses,
        background,
        servingBureau,
      }),
      ...registration({
        store,
        attempts: attemptStore,
        tickets,
        guesses,
        passwords,
        mail,
        audit,
        changes,
        background,
        servingBureau,
        ttlSeconds: times.attemptSeconds,
      }),
      ...tokens({
        store,
        attempts: attemptStore,
        audit,
        changes,
        credits: needs.credits,
        machines: needs.machines,
        servingBureau,
      }),
      ...users({ store, attempts: attemptStore, guesses, audit, changes }),
      'accounts.getMe': async (call) => {
        const { userId, bureauId, tokenId } = call.identity;
        const [user, token, bureau] = await Promise.all([
          store.findUser(userId),
          store.findToken(tokenId),
          bureaus.find(bureauId),
        ]);
        // Gone since the credential was looked at, a moment ago.
        if (!user || !token || !bureau) {
          throw new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
            headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
          });
        }
        return {
          status: 200,
          body: {
            user: wireUser(user),
            bureau: {
              bureau_id: bureau.bureauId,
              name: bureau.name,
              state: bureau.state,
              server_url: bureau.serverUrl,
            },
            token: { token_id: token.tokenId, name: token.name, expires_at: token.expiresAt.toISOString() },
          },
        };
      },
    },
    async identify(bearer) {
      if (parseToken(bearer) !== 'usr') return null;
      const digest = tokenDigest(bearer);
      return identities.get(digest.toString('latin1'), async () => {
        const found = await store.findBearer(digest);
        if (!found || found.userState !== 'active') return null;
        bureaus.refuseUnlessActive(found.bureauState);
        const { userId, bureauId, tokenId, restMs } = found;
        const models = common(found.models, found.bureauModels);
        if (found.isUseStale) background.run(tokenId, () => store.noteUse(tokenId));
        return {
          identity: { kind: 'user', userId, bureauId, tokenId, ...(models === null ? {} : { models }) },
          restMs,
        };
      });
    },
    async tokenEnd(tokenId) {
      return (await store.findToken(tokenId))?.expiresAt ?? null;
    },
    async issueUserToken({ bureauId, person, name, ttlSeconds }) {
      await servingBureau(bureauId);
      return store.tx(async (queries, tx) => {
        const { userId, state } = await store.ensureUser(tx, bureauId, person, id('usr'));
        if (state !== 'active')
          throw new Problem('conflict', 'conflict', 'This user is blocked and gets no token.');
        const { userToken, record } = newUserToken({
          userId,
          kind: 'user',
          name: name ?? null,
          ttlSeconds: ttlSeconds ?? times.tokenSeconds,
        });
        const { expiresAt } = await queries.insertToken(record);
        return { userToken, tokenId: record.tokenId, userId, bureauId, expiresAt };
      });
    },
    close: () => background.settled(),
  };
}

/** What two lists of models both allow; null allows all. */
function common(own: readonly string[] | null, bureaus: readonly string[] | null): readonly string[] | null {
  if (own === null || bureaus === null) return own ?? bureaus;
  return own.filter((id) => bureaus.includes(id));
}
