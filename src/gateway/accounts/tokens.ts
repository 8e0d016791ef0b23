// User tokens: administrators and backends issue, list and revoke them; a logout revokes the caller's own.
import type { TokenRecord } from '../../contract/gateway/types.gen.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import { invalidToken, Problem } from '../../kernel/problem.ts';
import { originOf } from '../identity.ts';
import { bureauFilter, canAccessBureau, type AdminIdentity } from './admin-scope.ts';
import type { LoginAttemptStore } from './login/store.ts';
import type {
  AccountsHandlers,
  AuditPort,
  ChangesPort,
  MachinesPort,
  RequireActiveBureau,
} from './core/ports.ts';
import {
  externalIssuer,
  type AccountsQueries,
  type AccountsStore,
  type NewToken,
  type Token,
  type TokenFilter,
  type User,
} from './core/store.ts';
import { newUserToken } from './core/user-token.ts';
import { userNotFound } from './users.ts';

const defaultTtlSeconds = 7 * 86_400;

interface TokensOptions {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  audit: AuditPort;
  changes: ChangesPort;
  machines: MachinesPort;
  requireActiveBureau: RequireActiveBureau;
}

type IssueCall = Parameters<AccountsHandlers['accounts.issueToken']>[0];
type RevokeCall = Parameters<AccountsHandlers['accounts.revokeTokens']>[0];

export function tokens(
  options: TokensOptions,
): Pick<
  AccountsHandlers,
  'accounts.issueToken' | 'accounts.listTokens' | 'accounts.revokeTokens' | 'accounts.logout'
> {
  const { store, changes, requireActiveBureau } = options;

  return {
    'accounts.issueToken': async (call) => {
      const { bureau_id: bureauId, metadata } = call.body;
      if (!canAccessBureau(call.identity, bureauId))
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', {
          param: 'bureau_id',
        });
      if (metadata !== undefined) requireStorable(metadata, 'metadata');
      await requireActiveBureau(bureauId);
      return store.tx((queries, tx) => issueToken(options, queries, tx, call));
    },

    'accounts.listTokens': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const bureauId = bureauFilter(identity, query.bureau_id);
      const filter = {
        ...(query.user_id !== undefined && { userId: query.user_id }),
        ...(bureauId !== undefined && { bureauId }),
      };
      const rows = await store.listTokens(filter, { after: afterCursor(query.cursor), limit });
      const { items, next_cursor } = pageOf(rows, limit, ({ tokenId }) => tokenId);
      return { status: 200, body: { items: items.map(serializeToken), next_cursor } };
    },

    'accounts.revokeTokens': async (call) => {
      const filter = await filterToRevoke(store, call);
      const revokedCount = await store.tx((queries, tx) =>
        revokeTokens(options, queries, tx, { call, filter }),
      );
      return { status: 200, body: { revoked: revokedCount } };
    },

    'accounts.logout': async ({ identity }) => {
      await store.tx(async (queries, tx) => {
        await queries.revokeTokens({ tokenId: identity.tokenId });
        await changes.bump(tx);
      });
      return { status: 200, body: { revoked: true } };
    },
  };
}

async function issueToken(
  { store, audit, machines }: TokensOptions,
  queries: AccountsQueries,
  tx: Tx,
  call: IssueCall,
) {
  const { bureau_id: bureauId, metadata, ttl } = call.body;
  const limits = await readLimits(machines, tx, call.identity);
  const userId =
    'user_id' in call.body
      ? call.body.user_id
      : (await store.ensureUser(tx, bureauId, externalPerson(call.body.external_id), id('usr'))).userId;
  const user = requireIssuable(await queries.lockUser(userId), bureauId);
  // A machine credential may act only for users with an `external_id`; all others log in themselves.
  if (limits.createdBy !== null && !(await queries.isExternalUser(user.userId))) throw userNotFound();
  if (user.state === 'blocked')
    throw new Problem('conflict', 'user_blocked', 'This user is blocked and cannot get a token.');
  if (metadata !== undefined) await queries.setMetadata(user.userId, metadata);
  const { userToken, record } = newUserToken({
    userId: user.userId,
    kind: 'issued',
    ttlSeconds: ttl ?? defaultTtlSeconds,
    ...limits,
  });
  const { expiresAt } = await queries.insertToken(record);
  const facts = { user_id: user.userId, bureau_id: bureauId, expires_at: expiresAt.toISOString() };
  await audit.record(tx, {
    ...originOf(call),
    action: call.operationId,
    target: { kind: 'token', id: record.tokenId },
    outcome: 'ok',
    diff: facts,
  });
  const answer = {
    status: 201 as const,
    headers: { 'cache-control': 'no-store' },
    body: { user_token: userToken, token_id: record.tokenId, ...facts },
  };
  await call.remember(tx, answer);
  return answer;
}

/**
 * A token that a machine credential issues expires no later than that credential and is revoked with it.
 * Tokens that an administrator's session issues have no such limit.
 */
async function readLimits(
  machines: MachinesPort,
  tx: Tx,
  { tokenId, bureauId }: AdminIdentity,
): Promise<Pick<NewToken, 'createdBy' | 'latestExpiry'>> {
  if (bureauId === undefined) return { createdBy: null, latestExpiry: null };
  const machine = await machines.lockLive(tx, tokenId);
  if (machine === null) throw invalidToken();
  return { createdBy: tokenId, latestExpiry: machine.expiresAt };
}

/** Throws 404 for a user that is missing, removed or of another Bureau. */
function requireIssuable(user: User | null, bureauId: string): User {
  if (!user || user.bureauId !== bureauId || user.state === 'removed') throw userNotFound();
  return user;
}

async function revokeTokens(
  { loginAttempts, audit, changes }: TokensOptions,
  queries: AccountsQueries,
  tx: Tx,
  { call, filter }: { call: RevokeCall; filter: TokenFilter },
): Promise<number> {
  const { userId, bureauId } = filter;
  // A finished login whose result was not read yet could still issue a token after the revocation.
  // Delete these attempts first: the delete waits for a transaction that is reading such a result,
  // and the revocation then sees the token that the transaction issued.
  if (userId !== undefined) await loginAttempts.withSql(tx).deleteForUser(userId);
  if (bureauId !== undefined) await loginAttempts.withSql(tx).deleteForBureau(bureauId);
  const revokedCount = await queries.revokeTokens(filter);
  await audit.record(tx, {
    ...originOf(call),
    action: call.operationId,
    target: auditTarget(filter),
    outcome: 'ok',
    diff: { revoked: revokedCount },
  });
  await changes.bump(tx);
  return revokedCount;
}

/** The filter has one of the three members: `filterToRevoke` made it. */
function auditTarget({ tokenId, userId, bureauId }: TokenFilter) {
  if (tokenId !== undefined) return { kind: 'token', id: tokenId } as const;
  if (userId !== undefined) return { kind: 'user', id: userId } as const;
  return { kind: 'bureau', id: bureauId ?? '' } as const;
}

/**
 * Selects the tokens of a revocation. Throws 404 for a token or a user outside the administrator's
 * scope.
 */
async function filterToRevoke(store: AccountsStore, { body, identity }: RevokeCall): Promise<TokenFilter> {
  if ('token_id' in body) {
    const token = await store.findToken(body.token_id);
    if (!token || !canAccessBureau(identity, token.bureauId)) throw tokenNotFound();
    return { tokenId: body.token_id };
  }
  if ('user_id' in body) {
    const user = await store.findUser(body.user_id);
    if (!user || user.state === 'removed' || !canAccessBureau(identity, user.bureauId)) throw userNotFound();
    return { userId: body.user_id };
  }
  return { bureauId: identity.bureauId ?? body.bureau_id };
}

function externalPerson(externalId: string) {
  return { issuer: externalIssuer, subject: externalId, email: null, displayName: null };
}

/** The position of a page's cursor; null for the first page. */
export function afterCursor(cursor: string | undefined): string | null {
  return cursor === undefined ? null : decodeCursor(cursor, isCursorText);
}

export function serializeToken(token: Token): TokenRecord {
  return {
    token_id: token.tokenId,
    kind: token.kind,
    user_id: token.userId,
    bureau_id: token.bureauId,
    name: token.name,
    last4: token.last4,
    models: token.models,
    created_at: token.createdAt.toISOString(),
    expires_at: token.expiresAt.toISOString(),
    last_used_at: token.lastUsedAt?.toISOString() ?? null,
    revoked_at: token.revokedAt?.toISOString() ?? null,
  };
}

export function tokenNotFound(): Problem {
  return new Problem('not_found', 'token_not_found', 'There is no such token.', { param: 'token_id' });
}
