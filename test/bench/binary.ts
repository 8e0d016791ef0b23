// Size of the executable, and time from its start to the first answer: in an empty folder and in
// one with data. Prints medians of several rounds; exits with 1 when one exceeds its limit.
//
//   node test/bench/binary.ts [ROUNDS]

import { spawn } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createGzip } from 'node:zlib';
import { median } from './statistics.ts';

const root = path.join(import.meta.dirname, '../..');
const binary = path.join(root, 'build/townhall');
const rounds = Number(process.argv[2] ?? 5);
const limits = { coldMs: 4_000, warmMs: 2_000 };

if (!existsSync(binary)) throw new Error('build/townhall does not exist; run "npm run binary" first');

const mebibytes = (bytes: number): string => `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
console.log(`size ${mebibytes(statSync(binary).size)}, gzip ${mebibytes(await measureZippedBytes())}`);

const coldMs: number[] = [];
const warmMs: number[] = [];
for (let round = 0; round < rounds; round += 1) {
  const folder = mkdtempSync(path.join(tmpdir(), 'townhall-binary-bench-'));
  coldMs.push(await measureStartMs(folder));
  warmMs.push(await measureStartMs(folder));
  rmSync(folder, { recursive: true, force: true });
}
const summarize = (timesMs: readonly number[]): string => `${median(timesMs)} ms (${timesMs.join(' ')})`;
console.log(`start to first answer, ${rounds} rounds: cold ${summarize(coldMs)}, warm ${summarize(warmMs)}`);
if (median(coldMs) > limits.coldMs || median(warmMs) > limits.warmMs) {
  console.error(`above ${limits.coldMs} ms cold or ${limits.warmMs} ms warm`);
  process.exitCode = 1;
}

async function measureStartMs(cwd: string): Promise<number> {
  const startedAtMs = performance.now();
  const child = spawn(binary, ['gateway'], {
    cwd,
    env: { PATH: '/usr/bin:/bin', HOME: cwd, PORT: '0', HOST: '127.0.0.1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (piece: Buffer) => {
      text += piece.toString('utf8');
      const [, listeningUrl] = /^\{(?=.*"msg":"listening").*"url":"([^"]+)"/m.exec(text) ?? [];
      if (listeningUrl !== undefined) resolve(listeningUrl);
    });
    void exit.then(() => reject(new Error(`the gateway exited before it listened:\n${text}`)));
  });
  const response = await fetch(`${url}/health`);
  await response.arrayBuffer();
  const elapsedMs = Math.round(performance.now() - startedAtMs);
  if (response.status !== 200) throw new Error(`/health answered ${response.status}`);
  child.kill('SIGTERM');
  await exit;
  return elapsedMs;
}

async function measureZippedBytes(): Promise<number> {
  let bytes = 0;
  for await (const piece of createReadStream(binary).pipe(createGzip({ level: 6 })))
    bytes += (piece as Buffer).length;
  return bytes;
}
