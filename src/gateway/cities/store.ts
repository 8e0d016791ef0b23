// SQL of the cities table.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';

/** One deployment of a project declaration. */
export interface City {
  cityId: string;
  name: string;
  baseUrl: string;
  target: 'local';
  version: string;
  status: 'live' | 'retired';
  deployedAt: Date;
  createdAt: Date;
}

/** A deployment to record. `deployedAt: null` means now. */
export type Deployment = Omit<City, 'deployedAt' | 'createdAt'> & { deployedAt: string | null };

export interface CitiesStore {
  list(): Promise<City[]>;
  /** The live city at the address, or else the live city deployed last. */
  findCurrent(baseUrl: string | null): Promise<City | null>;
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  upsert(tx: Tx, deployment: Deployment): Promise<City>;
  /** False when there was no such city. */
  remove(tx: Tx, cityId: string): Promise<boolean>;
}

export function citiesStore(database: Database): CitiesStore {
  const { sql } = database;
  return {
    async list() {
      const rows = await sql<City[]>`
        select ${columns(sql)} from gateway.cities_records order by deployed_at desc, city_id`;
      return [...rows];
    },
    async findCurrent(baseUrl) {
      const [city] = await sql<City[]>`
        select ${columns(sql)} from gateway.cities_records where status = 'live'
        order by (base_url = ${baseUrl ?? ''}) desc, deployed_at desc, city_id limit 1`;
      return city ?? null;
    },
    tx: (work) => database.tx(work),
    async upsert(tx, { cityId, name, baseUrl, target, version, status, deployedAt }) {
      const [storedCity] = await tx<City[]>`
        insert into gateway.cities_records as c (city_id, name, base_url, target, version, status, deployed_at)
        values (${cityId}, ${name}, ${baseUrl}, ${target}, ${version}, ${status},
          coalesce(${deployedAt}::timestamptz, gateway.townhall_now()))
        on conflict (city_id) do update set
          name = excluded.name, base_url = excluded.base_url, target = excluded.target,
          version = excluded.version, status = excluded.status, deployed_at = excluded.deployed_at
        returning ${columns(tx)}`;
      if (!storedCity) throw new Error('The city was not stored.');
      return storedCity;
    },
    async remove(tx, cityId) {
      const rows = await tx`delete from gateway.cities_records where city_id = ${cityId} returning 1`;
      return rows.length > 0;
    },
  };
}

function columns(sql: Sql) {
  return sql`city_id as "cityId", name, base_url as "baseUrl", target, version, status,
    deployed_at as "deployedAt", created_at as "createdAt"`;
}
