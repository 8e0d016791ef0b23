// The table of Bureaus, and the only file that names it.
import type { Database, Sql } from '../../kernel/database.ts';
import type { BureauState } from './lifecycle.ts';

/** A tenant of the gateway. `models`, `limits` and `startingCredits` are null where the server's own apply. */
export interface Bureau {
  bureauId: string;
  name: string;
  state: BureauState;
  serverUrl: string;
  redirectOrigins: string[];
  models: string[] | null;
  limits: Record<string, unknown> | null;
  startingCredits: bigint | null;
  metadata: Record<string, unknown>;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}

/** A piece of SQL that goes into another query. */
export type SqlFragment = ReturnType<Sql['unsafe']>;

export interface BureausStore {
  /** Without effect when the Bureau exists, whatever its members are; says whether it was made. */
  insertIfAbsent(bureau: Pick<Bureau, 'bureauId' | 'name' | 'serverUrl'>): Promise<boolean>;
  find(bureauId: string): Promise<Bureau | null>;
  stateOf(sql: Sql, column: string): SqlFragment;
}

export function bureausStore({ sql }: Database): BureausStore {
  return {
    async insertIfAbsent({ bureauId, name, serverUrl }) {
      const made = await sql`
        insert into gateway.bureaus_records (bureau_id, name, server_url) values (${bureauId}, ${name}, ${serverUrl})
        on conflict (bureau_id) do nothing
        returning 1`;
      return made.length > 0;
    },
    async find(bureauId) {
      const [found] = await sql<Bureau[]>`
        select bureau_id as "bureauId", name, state, server_url as "serverUrl", redirect_origins as "redirectOrigins",
          models, limits, starting_credits as "startingCredits", metadata,
          created_at as "createdAt", updated_at as "updatedAt", archived_at as "archivedAt"
        from gateway.bureaus_records where bureau_id = ${bureauId}`;
      return found ?? null;
    },
    stateOf: (own, column) => own`(select state from gateway.bureaus_records where bureau_id = ${own(column)})`,
  };
}
