// Time from the start of a process to its first answer with the embedded database: in an empty
// folder and with data. Prints median, minimum and maximum of several runs, and the resident memory
// after the answer.
//
//   node test/bench/start.ts [RUNS]
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readResidentMb } from './calls/process-usage.ts';
import { median } from './statistics.ts';

const entry = path.join(import.meta.dirname, '../../src/cli/main.ts');
const runs = Number(process.argv[2] ?? 5);

interface Start {
  firstAnswerMs: number;
  residentMb: number;
}

async function startOnce(argumentList: string[], folder: string): Promise<Start> {
  const startMs = performance.now();
  const env = {
    PATH: process.env['PATH'],
    PORT: '0',
    AGENT_PORT: '0',
    HOST: '127.0.0.1',
    LOG_LEVEL: 'warn',
    AGENT_GATEWAY_TOKEN: 'unused',
  };
  const child = spawn(process.execPath, [entry, ...argumentList], {
    cwd: folder,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let screen = '';
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.on('data', (piece: Buffer) => {
      screen += piece.toString('utf8');
      const address = /"url":"(http:[^"]+)"|gateway +(http:\S+)/.exec(screen);
      if (address) resolve((address[1] ?? address[2]) as string);
    });
    child.on('close', (code) => reject(new Error(`exited with ${code} before it listened:\n${screen}`)));
  });
  const answer = await fetch(`${url}/health`);
  await answer.text();
  const firstAnswerMs = performance.now() - startMs;
  const residentMb = child.pid === undefined ? Number.NaN : readResidentMb(child.pid);
  const close = new Promise((resolve) => child.on('close', resolve));
  child.kill('SIGTERM');
  await close;
  return { firstAnswerMs, residentMb };
}

function printSummary(name: string, measurements: readonly Start[]): void {
  const answers = summarize(measurements.map(({ firstAnswerMs }) => firstAnswerMs));
  const sizes = summarize(measurements.map(({ residentMb }) => residentMb));
  console.log(`${name.padEnd(34)} ms: ${answers}, MB: ${sizes}`);
}

function summarize(values: readonly number[]): string {
  const [middle, least, most] = [median(values), Math.min(...values), Math.max(...values)];
  return `median ${middle.toFixed(0)} (${least.toFixed(0)}–${most.toFixed(0)})`;
}

for (const command of ['gateway', 'agent', 'start']) {
  const firstStarts: Start[] = [];
  const restarts: Start[] = [];
  for (let run = 0; run < runs; run += 1) {
    const folder = mkdtempSync(path.join(tmpdir(), 'townhall-bench-'));
    firstStarts.push(await startOnce([command], folder));
    restarts.push(await startOnce([command], folder));
    rmSync(folder, { recursive: true, force: true });
  }
  printSummary(`townhall ${command}, first start`, firstStarts);
  printSummary(`townhall ${command}, with data`, restarts);
}
