// Calls every operation with every kind of credential and compares the answers with the contract.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { callers, operations, insertBureaus, callAll, type Finding } from '../contract/identity-table.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';

let world: GatewayWorld;
let findings: Finding[];
beforeAll(async () => {
  world = await startGateway({ withAdmin: true });
  await insertBureaus(world.sql);
  findings = await callAll(world.url, world.sql);
}, 240_000);
afterAll(() => world?.close());

describe('operations × identities', () => {
  test('has a result for every operation and every caller', () => {
    expect(findings).toHaveLength(operations().length * callers.length);
    expect(operations().length).toBeGreaterThan(30);
  });

  test.each(operations().map(({ operationId }) => operationId))(
    '%s answers each caller as declared',
    (operationId) => {
      const deviations = findings.filter(
        ({ operation, mismatch }) => operation.operationId === operationId && mismatch !== null,
      );
      expect(
        deviations.map(({ caller, status, code, mismatch }) => `${caller}: ${status} ${code}, ${mismatch}`),
      ).toEqual([]);
    },
  );

  test('admits exactly the valid callers to some operation', () => {
    const isAdmitted = (caller: string) =>
      findings.some(
        (finding) =>
          finding.caller === caller &&
          finding.expected === 'admitted' &&
          !finding.operation.ignoresCredential,
      );
    expect(callers.filter(isAdmitted)).toEqual([
      'none',
      'user',
      'user of another Bureau',
      'admin',
      'machine with all scopes',
      'machine of another Bureau',
      'machine with unknown scopes',
      'user by key header',
      'admin by key header',
      'two credentials',
    ]);
  });
});
