// A configured program as a service: it does not start after its service was stopped.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createSupervisor, processService, supervisorLimits } from '../../../src/agent/services/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-process-service-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const pidIn = (name: string) => readFile(join(folder, name), 'utf8').catch(() => '');

describe('a process service', () => {
  test('starts no program when it was stopped while the sandbox was prepared', async () => {
    const command = ['/bin/sh', '-c', 'echo $$ > pid; exec sleep 300'];
    const preparation = Promise.withResolvers<void>();
    const service = processService({
      name: 'web',
      command,
      async prepareProgram() {
        await preparation.promise;
        return { command, env: { PATH: '/usr/bin:/bin' }, folder, isSandboxed: false };
      },
      clock: systemClock,
    });
    const supervisor = createSupervisor(service, {
      limits: supervisorLimits,
      clock: systemClock,
      log: silentLog,
    });
    const start = supervisor.control('start');
    await supervisor.control('stop');
    await start;
    expect(supervisor.snapshot().state).toBe('stopped');
    preparation.resolve();
    // Long enough for the program to write its id.
    await new Promise((resolve) => setTimeout(resolve, 500));
    const pid = Number(await pidIn('pid'));
    // A program that was started would outlive the test.
    if (pid > 1) process.kill(pid, 'SIGKILL');
    expect(pid).toBe(0);
    await supervisor.close();
  });

  test('starts its program once the sandbox is prepared', async () => {
    const command = ['/bin/sh', '-c', 'echo $$ > pid; exec sleep 300'];
    const service = processService({
      name: 'web',
      command,
      prepareProgram: async () => ({ command, env: { PATH: '/usr/bin:/bin' }, folder, isSandboxed: false }),
      clock: systemClock,
    });
    const supervisor = createSupervisor(service, {
      limits: supervisorLimits,
      clock: systemClock,
      log: silentLog,
    });
    await supervisor.control('start');
    await expect.poll(() => pidIn('pid')).toMatch(/^\d+\n$/);
    await supervisor.close();
  });
});
