// Rewrites the tables of an embedded database without the space of deleted rows. It occupies the
// engine's only session until it is done, so no server may use the database meanwhile.
import type { Database } from './database.ts';

export interface CompactedTable {
  name: string;
  bytesBefore: number;
  bytesAfter: number;
}

// A table of several gigabytes takes minutes.
const deadlineMs = 6 * 60 * 60_000;
// Smaller tables return too little space to be rewritten.
const minTableBytes = 64 * 1024;

/** Rewrites each table in its own transaction, the largest first, and calls `onTable` after each. */
export async function compactTables(
  database: Pick<Database, 'session'>,
  onTable: (table: CompactedTable) => void,
): Promise<void> {
  const session = database.session({ deadlineMs });
  const { sql } = session;
  try {
    const tables = await sql<{ oid: number; name: string; bytes: bigint }[]>`
      select oid, oid::regclass::text as name, pg_total_relation_size(oid) as bytes from pg_class
      where relkind in ('r', 'm') and relpersistence = 'p'
        and relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
        and pg_total_relation_size(oid) >= ${minTableBytes}::integer
      order by bytes desc`;
    for (const { oid, name, bytes } of tables) {
      // The name comes quoted from the catalog.
      await sql.unsafe(`vacuum full ${name}`);
      const [size] = await sql<{ bytes: bigint }[]>`select pg_total_relation_size(${oid}::oid) as bytes`;
      onTable({ name, bytesBefore: Number(bytes), bytesAfter: Number(size?.bytes ?? 0n) });
    }
    await sql.unsafe('vacuum');
    await forgetStatistics(sql);
    await sql.unsafe('checkpoint');
  } finally {
    await session.close();
  }
}

// Sets the statistics of small tables to unknown, as embedded/vacuum.ts does: otherwise a cached plan that
// reads the whole small table would still do so after the table has grown.
async function forgetStatistics(sql: Database['sql']): Promise<void> {
  await sql`
    update pg_class set relpages = 0, reltuples = -1
    where relkind = 'r' and relpages < 10 and reltuples >= 0
      and relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)`;
}
