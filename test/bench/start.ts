// Time from the start of a process to its first answer with the embedded database: in an empty
// folder and with data. Prints median, minimum and maximum of some runs, and the resident memory
// after the answer.
//
//   node test/bench/start.ts [RUNS]
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const entry = path.join(import.meta.dirname, '../../src/cli/main.ts');
const runs = Number(process.argv[2] ?? 5);

interface Start {
  firstAnswerMs: number;
  residentMb: number;
}

async function startOnce(argumentList: string[], folder: string): Promise<Start> {
  const startedMs = performance.now();
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
    child.on('close', (code) => reject(new Error(`ended with ${code} before it listened:\n${screen}`)));
  });
  const answer = await fetch(`${url}/health`);
  await answer.text();
  const firstAnswerMs = performance.now() - startedMs;
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  const residentMb = Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
  const close = new Promise((resolve) => child.on('close', resolve));
  child.kill('SIGTERM');
  await close;
  return { firstAnswerMs, residentMb };
}

function printSummary(name: string, measurements: readonly Start[]): void {
  const line = (values: number[], unit: string): string => {
    const sortedValues = values.toSorted((a, b) => a - b);
    const roundedAt = (index: number): string => (sortedValues[index] ?? 0).toFixed(0);
    return `median ${roundedAt(Math.floor(sortedValues.length / 2))} ${unit} (${roundedAt(0)}–${roundedAt(sortedValues.length - 1)})`;
  };
  console.log(
    `${name.padEnd(34)} ${line(
      measurements.map(({ firstAnswerMs }) => firstAnswerMs),
      'ms',
    )}, ${line(
      measurements.map(({ residentMb }) => residentMb),
      'MB',
    )}`,
  );
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
