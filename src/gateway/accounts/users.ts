// Users as an administrator manages them: list, block, unblock, remove.
import type { UserRecord } from '../../contract/gateway/types.gen.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { originOf } from '../identity.ts';
import { bureauFilter, canAccessBureau, type AdminCall, type AdminIdentity } from './admin-scope.ts';
import type { AttemptLimits } from './core/attempt-limits.ts';
import type { LoginAttemptStore } from './login/store.ts';
import type { AccountsHandlers, AuditPort, ChangesPort, PaidCallStops } from './core/ports.ts';
import { serializeUserRecord } from './core/serialize-user.ts';
import { isExistingUser, type AccountsStore, type ExistingUser, type User } from './core/store.ts';

interface UserOptions {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  attemptLimits: Pick<AttemptLimits, 'forgetNetworks'>;
  audit: AuditPort;
  changes: ChangesPort;
  stops: PaidCallStops;
}

export function users(
  options: UserOptions,
): Pick<
  AccountsHandlers,
  'accounts.listUsers' | 'accounts.blockUser' | 'accounts.unblockUser' | 'accounts.removeUser'
> {
  const { store, attemptLimits } = options;
  return {
    'accounts.listUsers': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const afterId = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
      const rows = await store.listUsers(
        { bureauId: bureauFilter(identity, query.bureau_id), email: query.email },
        { after: afterId, limit },
      );
      const { items, next_cursor } = pageOf(rows, limit, ({ userId }) => userId);
      return { status: 200, body: { items: await serialize(options, items), next_cursor } };
    },
    'accounts.blockUser': (call) => changeState(options, call, 'blocked'),
    'accounts.unblockUser': (call) => changeState(options, call, 'active'),
    'accounts.removeUser': async (call) => {
      const { bureauId, email } = await remove(options, call);
      // This can run after the commit: known networks are stored as digests, which identify no person.
      if (email !== null) await attemptLimits.forgetNetworks(bureauId, email);
      return { status: 200, body: { removed: true } };
    },
  };
}

async function changeState(
  options: UserOptions,
  call: AdminCall & { body: { user_id: string } },
  state: 'active' | 'blocked',
): Promise<{ status: 200; body: UserRecord }> {
  const [body] = await serialize(options, [await setState(options, call, state)]);
  return { status: 200, body: body as UserRecord };
}

async function setState(
  { store, audit, changes, stops }: UserOptions,
  call: AdminCall & { body: { user_id: string } },
  state: 'active' | 'blocked',
): Promise<ExistingUser> {
  return store.tx(async (queries, tx) => {
    const user = requireVisible(await queries.lockUser(call.body.user_id), call.identity);
    // A stop protects the operator's credits, so a Bureau's own credential does not lift it.
    const isLifted =
      state === 'active' && call.identity.bureauId === undefined && (await stops.lift(tx, user.userId));
    if (user.state === state && !isLifted) return user;
    if (user.state !== state) await queries.setUserState(user.userId, state);
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
async function remove(
  { store, loginAttempts, audit, changes, stops }: UserOptions,
  call: AdminCall & { body: { user_id: string } },
): Promise<User> {
  return store.tx(async (queries, tx) => {
    const user = requireVisible(await queries.lockUser(call.body.user_id), call.identity);
    await loginAttempts.withSql(tx).deleteForUser(user.userId);
    await stops.lift(tx, user.userId);
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

async function serialize({ stops }: UserOptions, users: readonly ExistingUser[]): Promise<UserRecord[]> {
  const stopEnds = await stops.endsAt(users.map(({ userId }) => userId));
  return users.map((user) => serializeUserRecord(user, stopEnds.get(user.userId)));
}

function requireVisible(user: User | null, identity: AdminIdentity): ExistingUser {
  if (!user || !isExistingUser(user) || !canAccessBureau(identity, user.bureauId)) throw userNotFound();
  return user;
}

export function userNotFound(): Problem {
  return new Problem('not_found', 'user_not_found', 'There is no such user.', { param: 'user_id' });
}
