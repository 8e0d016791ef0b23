// Users as an administrator manages them: list, block, unblock, remove.
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { originOf } from '../identity.ts';
import { bureauFilter, canAccessBureau, type AdminCall, type AdminIdentity } from './admin-scope.ts';
import type { AttemptLimits } from './core/attempt-limits.ts';
import type { LoginAttemptStore } from './login/store.ts';
import type { AccountsHandlers, AuditPort, ChangesPort } from './core/ports.ts';
import { serializeUserRecord } from './core/serialize-user.ts';
import type { AccountsStore, User } from './core/store.ts';

export function users({
  store,
  loginAttempts,
  attemptLimits,
  audit,
  changes,
}: {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  attemptLimits: Pick<AttemptLimits, 'forgetNetworks'>;
  audit: AuditPort;
  changes: ChangesPort;
}): Pick<
  AccountsHandlers,
  'accounts.listUsers' | 'accounts.blockUser' | 'accounts.unblockUser' | 'accounts.removeUser'
> {
  async function setState(
    call: AdminCall & { body: { user_id: string } },
    state: 'active' | 'blocked',
  ): Promise<User> {
    return store.tx(async (queries, tx) => {
      const user = requireVisible(await queries.lockUser(call.body.user_id), call.identity);
      if (user.state === state) return user;
      await queries.setUserState(user.userId, state);
      await audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'user', id: user.userId },
        outcome: 'ok',
      });
      await changes.bump(tx);
      return { ...user, state };
    });
  }

  /** Erases the user and pending logins in one transaction. */
  async function remove(call: AdminCall & { body: { user_id: string } }): Promise<User> {
    return store.tx(async (queries, tx) => {
      const user = requireVisible(await queries.lockUser(call.body.user_id), call.identity);
      await loginAttempts.within(tx).deleteForUser(user.userId);
      await queries.eraseUser(user.userId);
      await audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'user', id: user.userId },
        outcome: 'ok',
      });
      await changes.bump(tx);
      return user;
    });
  }

  return {
    'accounts.listUsers': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
      const rows = await store.listUsers(
        { bureauId: bureauFilter(identity, query.bureau_id), email: query.email },
        { after, limit },
      );
      const { items, next_cursor } = pageOf(rows, limit, ({ userId }) => userId);
      return { status: 200, body: { items: items.map(serializeUserRecord), next_cursor } };
    },
    'accounts.blockUser': async (call) => ({
      status: 200,
      body: serializeUserRecord(await setState(call, 'blocked')),
    }),
    'accounts.unblockUser': async (call) => ({
      status: 200,
      body: serializeUserRecord(await setState(call, 'active')),
    }),
    'accounts.removeUser': async (call) => {
      const { bureauId, email } = await remove(call);
      // Outside the transaction: the known networks are stored under digests and identify no person.
      if (email !== null) await attemptLimits.forgetNetworks(bureauId, email);
      return { status: 200, body: { removed: true } };
    },
  };
}

function requireVisible(user: User | null, identity: AdminIdentity): User {
  if (!user || user.state === 'removed' || !canAccessBureau(identity, user.bureauId)) throw userNotFound();
  return user;
}

export function userNotFound(): Problem {
  return new Problem('not_found', 'user_not_found', 'There is no such user.', { param: 'user_id' });
}
