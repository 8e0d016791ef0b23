// How the programs of PostgreSQL are told where a database is.
import { describe, expect, test } from 'vitest';
import { addressOf } from '../../src/cli/data/postgres-tools.ts';

describe('addressOf', () => {
  test.each([
    ['', undefined, undefined],
    ['?sslmode=require', 'require', undefined],
    ['?ssl=require', 'require', undefined],
    ['?ssl=true', 'verify-full', 'system'],
    ['?sslmode=verify-full&sslrootcert=/etc/ca.pem', 'verify-full', '/etc/ca.pem'],
    ['?sslrootcert=system', 'verify-full', 'system'],
  ])('asks for TLS as the server does with %j', (query, mode, root) => {
    const address = addressOf(`postgres://user:p%40ss@db.example/town${query}`);
    expect(address).toMatchObject({
      PGHOST: 'db.example',
      PGUSER: 'user',
      PGPASSWORD: 'p@ss',
      PGDATABASE: 'town',
    });
    expect([address['PGSSLMODE'], address['PGSSLROOTCERT']]).toEqual([mode, root]);
  });
});
