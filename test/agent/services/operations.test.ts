// One call of a service's action, without an agent around it.
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import { callOperation, compileOperations } from '../../../src/agent/services/operations.ts';
import type { ServiceOperation } from '../../../src/agent/service-definition.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

const env = { PATH: process.env['PATH'] ?? '' };

// Longer than a test may take.
const timeoutMs = 600_000;

function call(run: ServiceOperation['run'], clock = systemClock): Promise<unknown> {
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
      clock,
    },
  );
}

describe('an operation of a service', () => {
  test.each([
    ['a function', () => {}],
    ['a symbol', Symbol('x')],
  ])('fails when it returns %s', async (_kind, result) => {
    await expect(call(async () => result)).rejects.toMatchObject({ code: 'action_failed' });
  });

  test('returns null when it has no result', async () => {
    expect(await call(async () => undefined)).toBeNull();
  });

  test('gives a program only the time that its call has left', async () => {
    let elapsedMs = 0;
    const clock = { ...systemClock, monotonicMs: () => performance.now() + elapsedMs };
    const result = await call(async (_input, { program }) => {
      elapsedMs = timeoutMs;
      return program(['sleep', '600']);
    }, clock);
    expect(result).toMatchObject({ endReason: 'deadline' });
  });
});
