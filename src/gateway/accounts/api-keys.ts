// API keys: user tokens that a user creates, names, limits and revokes.
import type { ApiKey } from '../../contract/gateway/types.gen.ts';
import { pageLimit, pageOf } from '../../kernel/contract/page.ts';
import type { Tx } from '../../kernel/data/database.ts';
import { invalidToken, Problem } from '../../kernel/problem.ts';
import { originOf } from '../identity.ts';
import { defaultKeySeconds, insertApiKey } from './core/api-key.ts';
import type { AccountsHandlers, AuditPort, ChangesPort, CreditsPort } from './core/ports.ts';
import type { AccountsQueries, AccountsStore, Token } from './core/store.ts';
import { afterCursor, serializeToken, tokenNotFound } from './tokens.ts';

interface ApiKeysOptions {
  store: AccountsStore;
  audit: AuditPort;
  changes: ChangesPort;
  credits: Pick<CreditsPort, 'openKey' | 'keys'>;
}

type CreateCall = Parameters<AccountsHandlers['accounts.createKey']>[0];

export function apiKeys(
  options: ApiKeysOptions,
): Pick<AccountsHandlers, 'accounts.createKey' | 'accounts.listKeys' | 'accounts.revokeKey'> {
  const { store, audit, changes, credits } = options;

  async function isKey(tokenId: string): Promise<boolean> {
    return (await store.findToken(tokenId))?.kind === 'key';
  }

  async function refuseKey(tokenId: string): Promise<void> {
    if (await isKey(tokenId))
      throw new Problem('forbidden', 'forbidden_for_identity', 'An API key cannot manage API keys.');
  }

  return {
    'accounts.createKey': async (call) => {
      await refuseKey(call.identity.tokenId);
      return store.tx((queries, tx) => createKey(options, queries, tx, call));
    },

    'accounts.listKeys': async ({ query, identity }) => {
      const limit = pageLimit(query);
      const { userId, tokenId } = identity;
      // An API key sees only itself.
      const keys = await store.listTokens(
        { userId, kinds: ['key'], isLive: true, ...((await isKey(tokenId)) ? { tokenId } : {}) },
        { after: afterCursor(query.cursor), limit },
      );
      const { items, next_cursor } = pageOf(keys, limit, (key) => key.tokenId);
      const budgets = await credits.keys(items.map((key) => key.tokenId));
      const budgetOf = new Map(budgets.map((budget) => [budget.tokenId, budget]));
      return {
        status: 200,
        body: { items: items.map((key) => serializeKey(key, budgetOf.get(key.tokenId))), next_cursor },
      };
    },

    'accounts.revokeKey': async (call) => {
      const { userId, tokenId } = call.identity;
      await refuseKey(tokenId);
      const key = await store.findToken(call.body.token_id);
      if (key?.kind !== 'key' || key.userId !== userId) throw tokenNotFound();
      const count = await store.tx(async (queries, tx) => {
        const revokedTokens = await queries.revokeTokens({ tokenId: key.tokenId });
        await audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'token', id: key.tokenId },
          outcome: 'ok',
        });
        await changes.bump(tx);
        return revokedTokens;
      });
      return { status: 200, body: { revoked: count > 0 } };
    },
  };
}

async function createKey(
  { audit, credits }: ApiKeysOptions,
  queries: AccountsQueries,
  tx: Tx,
  call: CreateCall,
) {
  const { name, models = null, credit_cap: cap = null, ttl: ttlSeconds = defaultKeySeconds } = call.body;
  const creator = await queries.lockLiveToken(call.identity.tokenId);
  if (creator === null) throw invalidToken();
  const { userToken, tokenId, expiresAt } = await insertApiKey({ queries, tx, credits }, creator, {
    name,
    models,
    creditCap: cap,
    ttlSeconds,
  });
  await audit.record(tx, {
    ...originOf(call),
    action: call.operationId,
    target: { kind: 'token', id: tokenId },
    outcome: 'ok',
    diff: { models, credit_cap: cap },
  });
  const answer = {
    status: 201 as const,
    headers: { 'cache-control': 'no-store' },
    body: {
      user_token: userToken,
      token_id: tokenId,
      name,
      models,
      credit_cap: cap,
      expires_at: expiresAt.toISOString(),
    },
  };
  await call.remember(tx, answer);
  return answer;
}

// Keys that are older than the ledger have no budget: they are listed without a cap and with nothing spent.
function serializeKey(
  token: Token,
  { cap, spent: spentCredits }: { cap: bigint | null; spent: bigint } = { cap: null, spent: 0n },
): ApiKey {
  const { token_id, name, last4, models, created_at, expires_at, last_used_at } = serializeToken(token);
  return {
    token_id,
    name: name ?? '',
    last4,
    models,
    credit_cap: cap === null ? null : Number(cap),
    credits_spent: Number(spentCredits),
    created_at,
    expires_at,
    last_used_at,
  };
}
