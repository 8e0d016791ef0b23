// Administration of an agent's tokens: create, list, revoke. Only `create` returns the token
// itself; the database has its digest and its last four characters.
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { createToken, tokenDigest, type Redactor } from '../../kernel/secrets/secret.ts';
import type { ListedToken, TokenStore } from './store.ts';

export interface IssuedAgentToken {
  tokenId: string;
  name: string;
  /** Only `create` returns it. */
  token: string;
  expiresAt: string | null;
}

export interface TokenAdmin {
  /** Without `ttlSeconds` the token is valid until it is revoked. */
  create(request: { name: string; ttlSeconds?: number }): Promise<IssuedAgentToken>;
  /** All tokens by age, including revoked and expired ones. */
  list(): Promise<ListedToken[]>;
  /** `revoked` is false when the token was no longer valid. Throws `token_not_found`. */
  revoke(tokenId: string): Promise<{ revoked: boolean }>;
}

const maxTtlSeconds = 3_650 * 86_400;

export function tokenAdmin({
  store,
  agentId,
  redactor,
  onChange = () => {},
}: {
  store: TokenStore;
  agentId: string;
  redactor: Redactor;
  /** Called after each change, so that this process applies it at once. */
  onChange?(): void;
}): TokenAdmin {
  return {
    async create({ name, ttlSeconds }) {
      requireValid(name, ttlSeconds);
      const token = createToken('agt');
      redactor.hold(token);
      const tokenId = id('tok');
      const digest = tokenDigest(token);
      await store.add({ tokenId, agentId, name, digest, last4: token.slice(-4), ttlSeconds });
      onChange();
      const row = (await store.list(agentId)).find((token) => token.tokenId === tokenId);
      return { tokenId, name, token, expiresAt: row?.expiresAt ?? null };
    },
    list: () => store.list(agentId),
    async revoke(tokenId) {
      const wasLive = await store.revoke(agentId, tokenId);
      if (wasLive === undefined)
        throw new Problem('not_found', 'token_not_found', 'This agent has no token with this id.');
      onChange();
      return { revoked: wasLive };
    },
  };
}

function requireValid(name: string, ttlSeconds: number | undefined): void {
  if (typeof name !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
    throw new Problem(
      'bad_request',
      'invalid_request',
      'The name of a token has up to 64 letters, digits, dots, hyphens and underscores.',
    );
  const isValidTtl =
    ttlSeconds === undefined ||
    (Number.isInteger(ttlSeconds) && ttlSeconds >= 1 && ttlSeconds <= maxTtlSeconds);
  if (!isValidTtl)
    throw new Problem('bad_request', 'invalid_request', 'A token lives from a second to ten years.');
}
