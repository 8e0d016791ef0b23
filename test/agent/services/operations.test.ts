// One call of a service's action, without an agent around it.
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import { callOperation, compileOperations } from '../../../src/agent/services/operations.ts';
import type { ServiceOperation } from '../../../src/agent/service-definition.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

const env = { PATH: process.env['PATH'] ?? '' };

function call(run: ServiceOperation['run'], timeoutMs: number): Promise<unknown> {
  const operations = compileOperations('probe', { act: { description: '', input: { type: 'object' }, run } });
  const operation = operations.get('act');
  if (operation === undefined) throw new Error('There is no operation act.');
  return callOperation(
    {
      operation,
      payload: {},
      running: new AbortController().signal,
      signal: new AbortController().signal,
      requestId: 'req_1',
      log: silentLog,
    },
    {
      prepareProgram: async ({ command }) => ({ command, env, folder: tmpdir(), isSandboxed: false }),
      timeoutMs,
      clock: systemClock,
    },
  );
}

describe('an operation of a service', () => {
  test.each([
    ['a function', () => {}],
    ['a symbol', Symbol('x')],
  ])('fails when it returns %s', async (_kind, result) => {
    await expect(call(async () => result, 5_000)).rejects.toMatchObject({ code: 'action_failed' });
  });

  test('returns null when it has no result', async () => {
    expect(await call(async () => undefined, 5_000)).toBeNull();
  });

  // A program with a deadline of its own would run until four seconds: two after the call's deadline.
  test('stops a program that it started late at the deadline of the call', async () => {
    const startedMs = performance.now();
    const result = await call(async (_input, { program }) => {
      await systemClock.sleep(1_800);
      return program(['sleep', '60']);
    }, 2_000);
    expect(result).toMatchObject({ endReason: 'deadline' });
    expect(performance.now() - startedMs).toBeLessThan(3_500);
  });
});
