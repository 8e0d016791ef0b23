// The users of the Bureaus as an administrator sees and rules them.
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import { originOf } from '../identity.ts';
import type { Guesses } from './attempt-limits.ts';
import type { AttemptStore } from './login/store.ts';
import type { AccountsHandlers, AuditPort, ChangesPort } from './ports.ts';
import type { AccountsStore, User } from './store.ts';
import { bureauFilter, mayRule, type AdminCall, type AdminIdentity } from './bureau-scope.ts';
import { wireUserRecord } from './serialize-user.ts';

export interface UsersNeeds {
  store: AccountsStore;
  attempts: AttemptStore;
  guesses: Pick<Guesses, 'forget'>;
  audit: AuditPort;
  changes: ChangesPort;
}

export function users(
  needs: UsersNeeds,
): Pick<
  AccountsHandlers,
  'accounts.listUsers' | 'accounts.blockUser' | 'accounts.unblockUser' | 'accounts.removeUser'
> {
  const { store } = needs;

  async function setState(
    call: AdminCall & { body: { user_id: string } },
    state: 'active' | 'blocked',
  ): Promise<User> {
    return store.tx(async (queries, tx) => {
      const user = known(await queries.lockUser(call.body.user_id), call.identity);
      if (user.state === state) return user;
      await queries.setUserState(user.userId, state);
      await needs.audit.record(tx, {
        ...originOf(call),
        action: call.operationId,
        target: { kind: 'user', id: user.userId },
        outcome: 'ok',
      });
      await needs.changes.bump(tx);
      return { ...user, state };
    });
  }

  return {
    'accounts.listUsers': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const after = query.cursor === undefined ? null : decodeCursor(query.cursor, isCursorText);
      const found = await store.listUsers(
        { bureauId: bureauFilter(identity, query.bureau_id), email: query.email },
        { after, limit },
      );
      const { items, next_cursor } = pageOf(found, limit, ({ userId }) => userId);
      return { status: 200, body: { items: items.map(wireUserRecord), next_cursor } };
    },
    'accounts.blockUser': async (call) => ({
      status: 200,
      body: wireUserRecord(await setState(call, 'blocked')),
    }),
    'accounts.unblockUser': async (call) => ({
      status: 200,
      body: wireUserRecord(await setState(call, 'active')),
    }),
    'accounts.removeUser': async (call) => {
      const { bureauId, email } = await store.tx(async (queries, tx) => {
        const user = known(await queries.lockUser(call.body.user_id), call.identity);
        await needs.attempts.within(tx).forgetUser(user.userId);
        await queries.eraseUser(user.userId);
        await needs.audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'user', id: user.userId },
          outcome: 'ok',
        });
        await needs.changes.bump(tx);
        return user;
      });
      // Not in the transaction: what is forgotten here tells nobody who it was, it only stands under a digest.
      if (email !== null) await needs.guesses.forget(bureauId, email);
      return { status: 200, body: { removed: true } };
    },
  };
}

function known(user: User | null, identity: AdminIdentity): User {
  if (!user || user.state === 'removed' || !mayRule(identity, user.bureauId)) throw userNotFound();
  return user;
}

export function userNotFound(): Problem {
  return new Problem('not_found', 'user_not_found', 'There is no such user.', { param: 'user_id' });
}
