// A worker of `townhall gateway --workers` whose gateway is a stub, in a process of its own.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const workerModule = new URL('../../../src/cli/servers/workers/worker.ts', import.meta.url);

test('continues after its metrics cannot be read', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-worker-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const program = join(folder, 'worker.mjs');
  await writeFile(
    program,
    `import { runWorker } from ${JSON.stringify(workerModule)};
    let reads = 0;
    process.exitCode = await runWorker({
      gateway: {
        listen: async () => ({}),
        readMetrics: async () => {
          if (reads++ === 0) throw new Error('unreadable');
          return 'up 1';
        },
      },
      start: { index: 0, url: 'http://127.0.0.1:1', maxConnections: 1 },
      stop: async () => {},
      log: { error: (details, message) => console.log(message, details.err.message) },
    });`,
  );
  const worker = fork(program, { silent: true });
  onTestFinished(() => void worker.kill('SIGKILL'));
  // `close` follows the last output, which may arrive after `exit`.
  const close = once(worker, 'close');
  let screen = '';
  worker.stdout?.on('data', (piece: Buffer) => void (screen += piece.toString()));
  const messages: unknown[] = [];
  worker.on('message', (message) => void messages.push(message));
  await expect.poll(() => messages).toEqual([{ kind: 'listening' }]);
  worker.send({ kind: 'read_metrics', id: 1 });
  worker.send({ kind: 'read_metrics', id: 2 });
  await expect
    .poll(() => messages.slice(1))
    .toEqual([
      { kind: 'metrics', id: 1, text: '' },
      { kind: 'metrics', id: 2, text: 'up 1' },
    ]);
  worker.send({ kind: 'stop' });
  expect(await close).toEqual([0, null]);
  expect(screen).toBe('the metrics could not be read unreadable\n');
});
