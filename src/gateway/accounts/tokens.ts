// User tokens beside those of logins: issued by an administrator, listed, revoked; and the keys that users make.
import type { ApiKey, TokenRecord } from '../../contract/gateway/types.gen.ts';
import { requireStorable } from '../../kernel/contract/storable.ts';
import { id } from '../../kernel/ids.ts';
import { decodeCursor, isCursorText, pageLimit, pageOf } from '../../kernel/contract/page.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Bureau } from '../bureaus/index.ts';
import { originOf } from '../identity.ts';
import type { AttemptStore } from './login/store.ts';
import type { AccountsHandlers, AuditPort, ChangesPort, CreditsPort, MachinesPort } from './ports.ts';
import { externalIssuer, type AccountsStore, type NewToken, type Token, type TokenChoice } from './store.ts';
import { newUserToken } from './user-token.ts';
import { bureauFilter, mayRule, type AdminCall, type AdminIdentity } from './bureau-scope.ts';
import { userNotFound } from './users.ts';

export interface TokensNeeds {
  store: AccountsStore;
  attempts: AttemptStore;
  audit: AuditPort;
  changes: ChangesPort;
  credits: Pick<CreditsPort, 'openKey' | 'keys'>;
  machines: MachinesPort;
  /** Throws 404 `bureau_not_found`, 403 for a Bureau that gets no tokens. */
  servingBureau: (bureauId: string) => Promise<Bureau>;
}

const day = 86_400;
const issuedSeconds = 7 * day;
const keySeconds = 365 * day;
const noStore = { 'cache-control': 'no-store' };

export function tokens({
  store,
  attempts,
  audit,
  changes,
  credits,
  machines,
  servingBureau,
}: TokensNeeds): Pick<
  AccountsHandlers,
  | 'accounts.issueToken'
  | 'accounts.listTokens'
  | 'accounts.revokeTokens'
  | 'accounts.createKey'
  | 'accounts.listKeys'
  | 'accounts.revokeKey'
  | 'accounts.logout'
> {
  async function isKey(tokenId: string): Promise<boolean> {
    return (await store.findToken(tokenId))?.kind === 'key';
  }

  async function refuseKey(tokenId: string): Promise<void> {
    if (await isKey(tokenId))
      throw new Problem('forbidden', 'forbidden_for_identity', 'An API key cannot rule over API keys.');
  }

  /** A machine credential's tokens end with it. An administrator's session sets no such bound. */
  async function boundBy(
    tx: Tx,
    { tokenId, bureauId }: AdminIdentity,
  ): Promise<Pick<NewToken, 'makerId' | 'endsBy'>> {
    if (bureauId === undefined) return { makerId: null, endsBy: null };
    const machine = await machines.lockLive(tx, tokenId);
    if (machine === null) throw invalidToken();
    return { makerId: tokenId, endsBy: machine.expiresAt };
  }

  return {
    'accounts.issueToken': async (call) => {
      const { body, identity } = call;
      const { bureau_id: bureauId, user_id: userId, external_id: externalId, metadata } = body;
      if (!mayRule(identity, bureauId))
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', {
          param: 'bureau_id',
        });
      if ((userId === undefined) === (externalId === undefined)) throw exactlyOne(['user_id', 'external_id']);
      if (metadata !== undefined) requireStorable(metadata, 'metadata');
      await servingBureau(bureauId);
      return store.tx(async (queries, tx) => {
        const bound = await boundBy(tx, identity);
        const made =
          externalId === undefined
            ? null
            : await store.ensureUser(tx, bureauId, externalPerson(externalId), id('usr'));
        const user = await queries.lockUser(made?.userId ?? userId ?? '');
        // A user of another Bureau is none here.
        if (!user || user.bureauId !== bureauId || user.state === 'removed') throw userNotFound();
        // A machine credential speaks only for users whom its own product names; all others log in themselves.
        if (bound.makerId !== null && !(await queries.isExternalUser(user.userId))) throw userNotFound();
        if (user.state === 'blocked')
          throw new Problem('conflict', 'user_blocked', 'This user is blocked and gets no token.');
        if (metadata !== undefined) await queries.setMetadata(user.userId, metadata);
        const { userToken, record } = newUserToken({
          userId: user.userId,
          kind: 'issued',
          ttlSeconds: body.ttl ?? issuedSeconds,
          ...bound,
        });
        const { expiresAt } = await queries.insertToken(record);
        const diff = { user_id: user.userId, bureau_id: bureauId, expires_at: expiresAt.toISOString() };
        await audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'token', id: record.tokenId },
          outcome: 'ok',
          diff,
        });
        const answer = {
          status: 201 as const,
          headers: noStore,
          body: {
            user_token: userToken,
            token_id: record.tokenId,
            user_id: user.userId,
            bureau_id: bureauId,
            expires_at: expiresAt.toISOString(),
          },
        };
        await call.remember(tx, answer);
        return answer;
      });
    },

    'accounts.listTokens': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const choice = choiceOf({ userId: query.user_id, bureauId: bureauFilter(identity, query.bureau_id) });
      const found = await store.listTokens(choice, { after: afterOf(query.cursor), limit });
      const { items, next_cursor } = pageOf(found, limit, ({ tokenId }) => tokenId);
      return { status: 200, body: { items: items.map(wireToken), next_cursor } };
    },

    'accounts.revokeTokens': async (call) => {
      const choice = await ruled(store, call);
      const revoked = await store.tx(async (queries, tx) => {
        const count = await queries.revokeTokens(choice);
        // A login that is done and was not read yet would make a token after this.
        if (choice.userId !== undefined) await attempts.within(tx).forgetUser(choice.userId);
        if (choice.bureauId !== undefined) await attempts.within(tx).forgetBureau(choice.bureauId);
        const [kind, target] =
          choice.tokenId !== undefined
            ? ['token', choice.tokenId]
            : choice.userId !== undefined
              ? ['user', choice.userId]
              : ['bureau', choice.bureauId ?? ''];
        await audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind, id: target },
          outcome: 'ok',
          diff: { revoked: count },
        });
        await changes.bump(tx);
        return count;
      });
      return { status: 200, body: { revoked } };
    },

    'accounts.createKey': async (call) => {
      const { userId, tokenId } = call.identity;
      await refuseKey(tokenId);
      const { name, models = null, credit_cap: cap = null, ttl = keySeconds } = call.body;
      return store.tx(async (queries, tx) => {
        const maker = await queries.lockLiveToken(tokenId);
        if (maker === null) throw invalidToken();
        const { userToken, record } = newUserToken({
          userId,
          kind: 'key',
          ttlSeconds: ttl,
          name,
          models,
          makerId: tokenId,
          endsBy: maker.expiresAt,
        });
        const { expiresAt } = await queries.insertToken(record);
        await credits.openKey(tx, {
          tokenId: record.tokenId,
          userId,
          cap: cap === null ? null : BigInt(cap),
        });
        await audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'token', id: record.tokenId },
          outcome: 'ok',
          diff: { models, credit_cap: cap },
        });
        const answer = {
          status: 201 as const,
          headers: noStore,
          body: {
            user_token: userToken,
            token_id: record.tokenId,
            name,
            models,
            credit_cap: cap,
            expires_at: expiresAt.toISOString(),
          },
        };
        await call.remember(tx, answer);
        return answer;
      });
    },

    'accounts.listKeys': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const { userId, tokenId } = identity;
      const visible: TokenChoice = { userId, kinds: ['key'], ...((await isKey(tokenId)) ? { tokenId } : {}) };
      const keys = await store.listTokens(
        { ...visible, isLive: true },
        { after: afterOf(query.cursor), limit },
      );
      const { items, next_cursor } = pageOf(keys, limit, ({ tokenId }) => tokenId);
      const budgets = new Map(
        (await credits.keys(items.map(({ tokenId }) => tokenId))).map((budget) => [budget.tokenId, budget]),
      );
      return {
        status: 200,
        body: { items: items.map((key) => wireKey(key, budgets.get(key.tokenId))), next_cursor },
      };
    },

    'accounts.revokeKey': async (call) => {
      const { userId, tokenId: own } = call.identity;
      await refuseKey(own);
      const key = await store.findToken(call.body.token_id);
      // Another user's key is none.
      if (key?.kind !== 'key' || key.userId !== userId) throw tokenNotFound();
      const revoked = await store.tx(async (queries, tx) => {
        const count = await queries.revokeTokens({ tokenId: key.tokenId });
        await audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'token', id: key.tokenId },
          outcome: 'ok',
        });
        await changes.bump(tx);
        return count;
      });
      return { status: 200, body: { revoked: revoked > 0 } };
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

/** Which tokens an administrator means. Throws 404 for a token or a user that is not there. */
async function ruled(
  store: AccountsStore,
  { body, identity }: AdminCall & { body: { token_id?: string; user_id?: string; bureau_id?: string } },
): Promise<TokenChoice> {
  const { token_id: tokenId, user_id: userId, bureau_id: bureauId } = body;
  if (tokenId !== undefined) {
    const token = await store.findToken(tokenId);
    if (!token || !mayRule(identity, token.bureauId)) throw tokenNotFound();
    return { tokenId };
  }
  if (userId !== undefined) {
    const user = await store.findUser(userId);
    if (!user || user.state === 'removed' || !mayRule(identity, user.bureauId)) throw userNotFound();
    return { userId };
  }
  if (bureauId === undefined) throw exactlyOne(['token_id', 'user_id', 'bureau_id']);
  return { bureauId: bureauFilter(identity, bureauId) ?? bureauId };
}

function externalPerson(externalId: string) {
  return { issuer: externalIssuer, subject: externalId, email: null, displayName: null };
}

function choiceOf(given: { userId: string | undefined; bureauId: string | undefined }): TokenChoice {
  return {
    ...(given.userId !== undefined && { userId: given.userId }),
    ...(given.bureauId !== undefined && { bureauId: given.bureauId }),
  };
}

function afterOf(cursor: string | undefined): string | null {
  return cursor === undefined ? null : decodeCursor(cursor, isCursorText);
}

function wireToken(token: Token): TokenRecord {
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

// A key from before the ledger has no budget.
function wireKey(
  token: Token,
  { cap, spent }: { cap: bigint | null; spent: bigint } = { cap: null, spent: 0n },
): ApiKey {
  const { token_id, name, last4, models, created_at, expires_at, last_used_at } = wireToken(token);
  return {
    token_id,
    name: name ?? '',
    last4,
    models,
    credit_cap: cap === null ? null : Number(cap),
    credits_spent: Number(spent),
    created_at,
    expires_at,
    last_used_at,
  };
}

function exactlyOne(members: readonly string[]): Problem {
  const message = `exactly one of ${members.join(', ')} is required`;
  return new Problem('bad_request', 'invalid_request', `Of the members, ${message}.`, {
    param: members[0] ?? null,
    details: members.map((path) => ({ path, message })),
  });
}

function invalidToken(): Problem {
  return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
    headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
  });
}

function tokenNotFound(): Problem {
  return new Problem('not_found', 'token_not_found', 'There is no such token.', { param: 'token_id' });
}
