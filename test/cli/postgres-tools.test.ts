// The environment variables by which pg_dump and pg_restore find a database.
import { describe, expect, test } from 'vitest';
import { connectionVariables } from '../../src/cli/data/postgres-tools.ts';

describe('connectionVariables', () => {
  test.each([
    ['', undefined, undefined],
    ['?sslmode=require', 'require', undefined],
    ['?ssl=require', 'require', undefined],
    ['?ssl=true', 'verify-full', 'system'],
    ['?sslmode=verify-full&sslrootcert=/etc/ca.pem', 'verify-full', '/etc/ca.pem'],
    ['?sslrootcert=system', 'verify-full', 'system'],
  ])('uses TLS as the gateway does with %j', (query, mode, root) => {
    const variables = connectionVariables(`postgres://user:p%40ss@db.example/town${query}`);
    expect(variables).toMatchObject({
      PGHOST: 'db.example',
      PGUSER: 'user',
      PGPASSWORD: 'p@ss',
      PGDATABASE: 'town',
    });
    expect([variables['PGSSLMODE'], variables['PGSSLROOTCERT']]).toEqual([mode, root]);
  });
});
