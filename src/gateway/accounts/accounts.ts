// The accounts: login attempts, user tokens and the current user. It owns the answer to whose token a
// bearer credential is, and asks the database each time, so that a revocation holds at once everywhere.
import type { User as WireUser } from '../../contract/gateway/types.gen.ts';
import { createBackground } from '../../kernel/background.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { parseToken, tokenDigest } from '../../kernel/secret.ts';
import type { Bureau, BureauState } from '../bureaus/index.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { defaultLoginTimes, newUserToken, readLogin, startDoneAttempt, type LoginTimes } from './login.ts';
import { localLogin } from './local-login.ts';
import type { LoginContext, LoginProvider, Person } from './login-provider.ts';
import type { AccountsStore, User } from './store.ts';

export interface AccountsNeeds {
  store: AccountsStore;
  /** Whom users belong to. */
  bureaus: {
    find(bureauId: string): Promise<Bureau | null>;
    refuseUnlessActive(state: BureauState): void;
  };
  log: Log;
  /** Whether the local login exists; `mayLogInLocally` says so for a server's settings. */
  localLogin: boolean;
  times?: Partial<LoginTimes>;
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
  /** A token without a login, for a command of this machine's owner. The user is made when the person is new to the Bureau. */
  issueUserToken(request: { bureauId: string; person: Person; name?: string; ttlSeconds?: number }): Promise<IssuedToken>;
}

// A credential in an answer must not end up in a cache.
const noStore = { 'cache-control': 'no-store' };

export function accounts(needs: AccountsNeeds): Accounts {
  const { store, bureaus, log } = needs;
  const times = { ...defaultLoginTimes, ...needs.times };
  const background = createBackground(log);
  const providers: readonly LoginProvider[] = needs.localLogin ? [localLogin] : [];

  async function servingBureau(bureauId: string): Promise<Bureau> {
    const bureau = await bureaus.find(bureauId);
    if (!bureau) throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau_id' });
    bureaus.refuseUnlessActive(bureau.state);
    return bureau;
  }

  return {
    name: 'accounts',
    title: 'Accounts',
    env: [],
    handlers: {
      'accounts.listProviders': async (call) => {
        const { bureauId } = await servingBureau(call.query.bureau_id);
        const usable = providers.filter((provider) => provider.available(contextOf(bureauId, call)));
        return {
          status: 200,
          body: { items: usable.map(({ id, label, kind, inputs }) => ({ id, label, kind, inputs: [...inputs] })) },
        };
      },
      'accounts.startLogin': async (call) => {
        const { bureauId } = await servingBureau(call.body.bureau_id);
        const context = contextOf(bureauId, call);
        const provider = providers.find((candidate) => candidate.id === call.body.provider && candidate.available(context));
        if (!provider) {
          throw new Problem('not_found', 'provider_not_found', 'There is no such login provider here.', { param: 'provider' });
        }
        const { outcome, person } = await provider.start(context);
        const loginId = await startDoneAttempt(store, { bureauId, provider: provider.id, person }, times);
        background.run('forget old attempts', () => store.forgetOldAttempts());
        return { status: 200, headers: noStore, body: { login_id: loginId, provider: provider.id, outcome } };
      },
      'accounts.getLoginResult': async (call) => {
        const loginId = call.query.login_id;
        const outcome = await readLogin(store, loginId, { times, refuseUnlessActive: bureaus.refuseUnlessActive });
        if (outcome.status !== 'done') return { status: 200, headers: noStore, body: { login_id: loginId, status: outcome.status } };
        const { userToken, expiresAt, user } = outcome;
        return {
          status: 200,
          headers: noStore,
          body: {
            login_id: loginId,
            status: 'done',
            user_token: userToken,
            expires_at: expiresAt.toISOString(),
            user: wireUser(user),
          },
        };
      },
      'accounts.getMe': async (call) => {
        const { userId, bureauId, tokenId } = call.identity;
        const [user, token, bureau] = await Promise.all([store.findUser(userId), store.findToken(tokenId), bureaus.find(bureauId)]);
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
            bureau: { bureau_id: bureau.bureauId, name: bureau.name, state: bureau.state, server_url: bureau.serverUrl },
            token: { token_id: token.tokenId, name: token.name, expires_at: token.expiresAt.toISOString() },
          },
        };
      },
    },
    async identify(bearer) {
      if (parseToken(bearer) !== 'usr') return null;
      const found = await store.findBearer(tokenDigest(bearer));
      if (!found || found.userState !== 'active') return null;
      bureaus.refuseUnlessActive(found.bureauState);
      const { userId, bureauId, tokenId } = found;
      if (found.isUseStale) background.run(tokenId, () => store.noteUse(tokenId));
      return { kind: 'user', userId, bureauId, tokenId };
    },
    async issueUserToken({ bureauId, person, name, ttlSeconds }) {
      await servingBureau(bureauId);
      const { userId, state } = await store.ensureUser(bureauId, person, id('usr'));
      if (state !== 'active') throw new Problem('conflict', 'conflict', 'This user is blocked and gets no token.');
      const { userToken, record } = newUserToken(userId, name ?? null, ttlSeconds ?? times.tokenSeconds);
      const { expiresAt } = await store.insertToken(record);
      return { userToken, tokenId: record.tokenId, userId, bureauId, expiresAt };
    },
    close: () => background.settled(),
  };
}

function contextOf(
  bureauId: string,
  call: { remoteAddress: string; request: { host: string; origin: string | undefined } },
): LoginContext {
  return { bureauId, remoteAddress: call.remoteAddress, host: call.request.host, origin: call.request.origin };
}

function wireUser(user: User): WireUser {
  return {
    user_id: user.userId,
    email: user.email,
    display_name: user.displayName,
    avatar_url: user.avatarUrl,
    metadata: user.metadata,
    created_at: user.createdAt.toISOString(),
  };
}
