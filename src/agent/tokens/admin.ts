// The tokens of one agent as its owner manages them: made, listed, revoked. A token is shown where it is made and
// nowhere else; what is stored of it is a digest and its last four characters.
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { token as mintToken, tokenDigest, type Redactor } from '../../kernel/secrets/secret.ts';
import type { ListedToken, TokenStore } from './store.ts';

export interface IssuedAgentToken {
  tokenId: string;
  name: string;
  /** Shown this once. */
  token: string;
  expiresAt: string | null;
}

export interface TokenDesk {
  /** Without `ttlSeconds` it lives until it is revoked. */
  create(request: { name: string; ttlSeconds?: number }): Promise<IssuedAgentToken>;
  /** All of them, the revoked and the expired too, in the order in which they were made. */
  list(): Promise<ListedToken[]>;
  /** Whether it was alive until now; throws `token_not_found`. */
  revoke(tokenId: string): Promise<{ revoked: boolean }>;
}

export interface TokenDeskNeeds {
  store: TokenStore;
  agentId: string;
  redactor: Redactor;
  /** Called after each change, so that this process need not wait to see it. */
  onChange?(): void;
}

const longestSeconds = 3_650 * 86_400;

export function tokenDesk({ store, agentId, redactor, onChange = () => {} }: TokenDeskNeeds): TokenDesk {
  return {
    async create({ name, ttlSeconds }) {
      if (typeof name !== 'string' || !/^[A-Za-z0-9._-]{1,64}$/.test(name))
        throw new Problem(
          'bad_request',
          'invalid_request',
          'The name of a token has up to 64 letters, digits, dots, hyphens and underscores.',
        );
      if (
        ttlSeconds !== undefined &&
        !(Number.isInteger(ttlSeconds) && ttlSeconds >= 1 && ttlSeconds <= longestSeconds)
      ) {
        throw new Problem('bad_request', 'invalid_request', 'A token lives from a second to ten years.');
      }
      const token = mintToken('agt');
      redactor.hold(token);
      const tokenId = id('tok');
      await store.add({
        tokenId,
        agentId,
        name,
        digest: tokenDigest(token),
        last4: token.slice(-4),
        ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
      });
      onChange();
      const made = (await store.list(agentId)).find((listed) => listed.tokenId === tokenId);
      return { tokenId, name, token, expiresAt: made?.expiresAt ?? null };
    },
    list: () => store.list(agentId),
    async revoke(tokenId) {
      const outcome = await store.revoke(agentId, tokenId);
      if (outcome === undefined)
        throw new Problem('not_found', 'token_not_found', 'This agent has no token with this id.');
      onChange();
      return { revoked: outcome };
    },
  };
}
