// Administration of an agent's tokens: create, list, revoke. Only `create` returns the token
// itself; the database has its digest and its last four characters.
import { id } from '../../kernel/ids.ts';
import { invalidMember, Problem } from '../../kernel/problem.ts';
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
      const last4 = token.slice(-4);
      const { expiresAt } = await store.add({ tokenId, agentId, name, digest, last4, ttlSeconds });
      onChange();
      return { tokenId, name, token, expiresAt };
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

// The control socket passes JSON that nothing has validated.
function requireValid(name: unknown, ttlSeconds: unknown): void {
  if (typeof name !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
    throw invalidMember('name', 'must be 1 to 64 letters, digits, dots, hyphens or underscores');
  if (ttlSeconds === undefined) return;
  const isTtl = typeof ttlSeconds === 'number' && Number.isInteger(ttlSeconds);
  if (!isTtl || ttlSeconds < 1 || ttlSeconds > maxTtlSeconds)
    throw invalidMember('ttlSeconds', `must be a whole number from 1 to ${maxTtlSeconds}`);
}
