// `townhall city serve` under a supervisor that stops it early.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { entry, runTownhall } from '../cli/townhall.ts';
import { compileCache } from '../support/compile-cache.ts';

test.each(['leave', 'disconnect'])(
  'closes a gateway whose start is interrupted by a %s',
  { timeout: 180_000 },
  async (interruption) => {
    const folder = await mkdtemp(join(tmpdir(), 'th-serve-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    expect((await runTownhall(['init', 'demo'], { cwd: folder })).code).toBe(0);
    const project = join(folder, 'demo');
    const stateDirectory = join(project, '.townhall');
    const child = spawn(process.execPath, [entry, 'city', 'serve'], {
      cwd: project,
      env: { PATH: process.env['PATH'], HOME: folder, NODE_COMPILE_CACHE: compileCache },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    let screen = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (piece: Buffer) => void (screen += piece.toString()));
    const socket = join(stateDirectory, 'gateway-1.sock');
    child.send({
      id: 1,
      kind: 'start',
      input: { project, stateDirectory, socket, url: 'http://127.0.0.1:1' },
    });
    await expect.poll(() => screen).toContain('creating the embedded database');
    if (interruption === 'leave') child.send({ id: 2, kind: 'leave', input: { lingerMs: 0 } });
    else child.disconnect();
    const [code] = await once(child, 'exit');
    // A gateway that is still open would keep the process alive until this message.
    expect(screen).not.toContain('did not exit');
    expect(code).toBe(0);
  },
);
