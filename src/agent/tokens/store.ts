// Agents and the digests of their tokens. The only file that names the tables `tokens_*`.
import type { Database } from '../../kernel/database.ts';

export interface LiveToken {
  tokenId: string;
  digest: Buffer;
}

/** What is known of a digest, whichever agent it belongs to. */
export interface KnownToken {
  tokenId: string;
  agentId: string;
  isLive: boolean;
}

export interface TokenStore {
  /** The agent of that name, made under `agentId` when it is new. */
  agent(name: string, agentId: string): Promise<string>;
  find(digest: Buffer): Promise<KnownToken | undefined>;
  /** Without effect when the digest is stored already. */
  add(token: { tokenId: string; agentId: string; name: string; digest: Buffer; last4: string }): Promise<void>;
  /** The tokens of the agent that are neither revoked nor expired. */
  live(agentId: string): Promise<LiveToken[]>;
}

export function tokenStore({ sql }: Pick<Database, 'sql'>): TokenStore {
  return {
    async agent(name, agentId) {
      // Two starters may come at once; the second one finds the first one's row.
      await sql`insert into agent.tokens_agents (agent_id, name) values (${agentId}, ${name}) on conflict (name) do nothing`;
      const [row] = await sql<{ agent_id: string }[]>`select agent_id from agent.tokens_agents where name = ${name}`;
      if (!row) throw new Error('The row of the agent is gone.');
      return row.agent_id;
    },
    async find(digest) {
      const [row] = await sql<{ token_id: string; agent_id: string; live: boolean }[]>`
        select token_id, agent_id, revoked_at is null and coalesce(expires_at > agent.townhall_now(), true) as live
        from agent.tokens_tokens where digest = ${digest}`;
      return row && { tokenId: row.token_id, agentId: row.agent_id, isLive: row.live };
    },
    async add({ tokenId, agentId, name, digest, last4 }) {
      await sql`
        insert into agent.tokens_tokens (token_id, agent_id, name, digest, last4)
        values (${tokenId}, ${agentId}, ${name}, ${digest}, ${last4})
        on conflict (digest) do nothing`;
    },
    async live(agentId) {
      const rows = await sql<{ token_id: string; digest: Uint8Array }[]>`
        select token_id, digest from agent.tokens_tokens
        where agent_id = ${agentId} and revoked_at is null and coalesce(expires_at > agent.townhall_now(), true)`;
      return rows.map((row) => ({ tokenId: row.token_id, digest: Buffer.from(row.digest) }));
    },
  };
}
