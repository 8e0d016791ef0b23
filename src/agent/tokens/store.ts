// SQL of agents and the digests of their tokens. The only file that names the tables `tokens_*`.
import type { Database } from '../../kernel/data/database.ts';

export interface LiveToken {
  tokenId: string;
  digest: Buffer;
}

/** The token of a digest, of any agent in the database. */
export interface StoredToken {
  tokenId: string;
  agentId: string;
  isLive: boolean;
}

/** A token as shown to the agent's owner. */
export interface ListedToken {
  tokenId: string;
  name: string;
  last4: string;
  state: 'live' | 'expired' | 'revoked';
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
}

export interface TokenStore {
  /** Returns the id of the agent with this name. A new agent is inserted with the id `agentId`. */
  ensureAgent(name: string, agentId: string): Promise<string>;
  findAgent(name: string): Promise<string | undefined>;
  find(digest: Buffer): Promise<StoredToken | undefined>;
  /** Does nothing when the digest is stored already. */
  add(token: {
    tokenId: string;
    agentId: string;
    name: string;
    digest: Buffer;
    last4: string;
    ttlSeconds?: number | undefined;
  }): Promise<{ expiresAt: string | null }>;
  list(agentId: string): Promise<ListedToken[]>;
  /** Returns whether the token was live; undefined when the agent has no token with this id. */
  revoke(agentId: string, tokenId: string): Promise<boolean | undefined>;
  /** Tokens that are neither revoked nor expired. */
  listLive(agentId: string): Promise<LiveToken[]>;
}

interface TokenRow {
  token_id: string;
  name: string;
  last4: string;
  created_at: Date;
  expires_at: Date | null;
  revoked_at: Date | null;
  state: 'live' | 'expired';
}

export function tokenStore({ sql }: Pick<Database, 'sql'>): TokenStore {
  return {
    async ensureAgent(name, agentId) {
      // When two processes start at the same time, the second one reads the row of the first.
      await sql`
        insert into agent.tokens_agents (agent_id, name) values (${agentId}, ${name})
        on conflict (name) do nothing`;
      const [row] = await sql<{ agent_id: string }[]>`
        select agent_id from agent.tokens_agents where name = ${name}`;
      if (!row) throw new Error(`The row of the agent "${name}" was deleted during the start.`);
      return row.agent_id;
    },
    async findAgent(name) {
      const [row] = await sql<{ agent_id: string }[]>`
        select agent_id from agent.tokens_agents where name = ${name}`;
      return row?.agent_id;
    },
    async find(digest) {
      const [row] = await sql<{ token_id: string; agent_id: string; live: boolean }[]>`
        select token_id, agent_id,
          revoked_at is null and coalesce(expires_at > agent.townhall_now(), true) as live
        from agent.tokens_tokens where digest = ${digest}`;
      return row && { tokenId: row.token_id, agentId: row.agent_id, isLive: row.live };
    },
    async add({ tokenId, agentId, name, digest, last4, ttlSeconds = null }) {
      const [row] = await sql<{ expires_at: Date | null }[]>`
        insert into agent.tokens_tokens (token_id, agent_id, name, digest, last4, expires_at)
        values (${tokenId}, ${agentId}, ${name}, ${digest}, ${last4},
          agent.townhall_now() + make_interval(secs => ${ttlSeconds}::double precision))
        on conflict (digest) do nothing
        returning expires_at`;
      return { expiresAt: row?.expires_at?.toISOString() ?? null };
    },
    async list(agentId) {
      const rows = await sql<TokenRow[]>`
        select token_id, name, last4, created_at, expires_at, revoked_at,
          case when expires_at <= agent.townhall_now() then 'expired' else 'live' end as state
        from agent.tokens_tokens where agent_id = ${agentId} order by created_at, token_id`;
      return rows.map(tokenOf);
    },
    async revoke(agentId, tokenId) {
      // The row is locked in the same statement, so only one of two concurrent revocations reports that the
      // token was live.
      const rows = await sql<{ was_live: boolean }[]>`
        with old as (
          select token_id,
            revoked_at is null and coalesce(expires_at > agent.townhall_now(), true) as was_live
          from agent.tokens_tokens where agent_id = ${agentId} and token_id = ${tokenId} for update
        )
        update agent.tokens_tokens t set revoked_at = coalesce(t.revoked_at, agent.townhall_now())
        from old where t.token_id = old.token_id returning old.was_live`;
      return rows[0]?.was_live;
    },
    async listLive(agentId) {
      const rows = await sql<{ token_id: string; digest: Uint8Array }[]>`
        select token_id, digest from agent.tokens_tokens
        where agent_id = ${agentId} and revoked_at is null
          and coalesce(expires_at > agent.townhall_now(), true)`;
      return rows.map((row) => ({ tokenId: row.token_id, digest: Buffer.from(row.digest) }));
    },
  };
}

function tokenOf(row: TokenRow): ListedToken {
  return {
    tokenId: row.token_id,
    name: row.name,
    last4: row.last4,
    state: row.revoked_at === null ? row.state : 'revoked',
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
    revokedAt: row.revoked_at?.toISOString() ?? null,
  };
}
