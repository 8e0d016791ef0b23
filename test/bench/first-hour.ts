// Compares two commits, in alternating rounds, by what a new user waits for: `npm ci`, the first and the
// second start, one call, and the portal's first page. Prints a table of medians; processor time is user and
// system time of all processes.
//
//   node test/bench/first-hour.ts --before COMMIT [--after COMMIT] [--rounds 5]
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { exitWithUsageError, parseCommandLine } from '../../scripts/command-line.ts';
import { median } from './statistics.ts';

const root = path.join(import.meta.dirname, '../..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    before: { type: 'string' },
    after: { type: 'string', default: 'HEAD' },
    rounds: { type: 'string', default: '5' },
  },
});
if (options.before === undefined) exitWithUsageError(import.meta.filename, '--before needs a commit');

/** Values of one round by their row, such as `npm ci, processor s`. */
type Round = Record<string, number>;

const rounds: Record<'before' | 'after', Round[]> = { before: [], after: [] };
// All checkouts are deleted at the end: an install after a deletion took up to 1.7 times the processor time,
// most of it in the kernel.
const checkouts = mkdtempSync(path.join(tmpdir(), 'townhall-first-hour-'));
try {
  for (let round = 0; round < Number(options.rounds); round += 1) {
    for (const side of ['before', 'after'] as const) {
      const values = await measure(options[side] ?? 'HEAD', path.join(checkouts, `${side}-${round}`));
      rounds[side].push(values);
      console.error(`round ${round + 1}, ${side}: ${JSON.stringify(values)}`);
    }
  }
  printTable();
} finally {
  rmSync(checkouts, { recursive: true, force: true });
}

async function measure(commit: string, checkout: string): Promise<Round> {
  execFileSync('git', ['clone', '-q', '--shared', '--no-checkout', root, checkout]);
  execFileSync('git', ['-C', checkout, 'checkout', '-q', commit]);
  const install = measureCommand('npm ci --no-audit', checkout);
  const [kilobytes = '0'] = execFileSync('du', ['-sk', path.join(checkout, 'node_modules')])
    .toString()
    .split('\t');
  return {
    'npm ci, s': install.seconds,
    'npm ci, processor s': install.processorSeconds,
    'node_modules, MB': Math.round(Number(kilobytes) / 1024),
    ...(await measureStarts(checkout)),
  };
}

/** Measures two starts on one data folder; the call and the page are measured after the second. */
async function measureStarts(checkout: string): Promise<Round> {
  const first = await start(checkout);
  await stop(first.child);
  const second = await start(checkout);
  try {
    const operation = 'gateway ai.generateText model=local/echo prompt=Hi';
    const call = measureCommand(
      `node_modules/.bin/node src/cli/main.ts call ${operation} ` +
        `--url ${second.url} --token-file data/local.token`,
      checkout,
    );
    return {
      'first start, s': first.seconds,
      'first start, processor s': first.processorSeconds,
      'second start, s': second.seconds,
      'second start, processor s': second.processorSeconds,
      'townhall call, s': call.seconds,
      'townhall call, processor s': call.processorSeconds,
      ...(await measurePage(second.url)),
    };
  } finally {
    await stop(second.child);
  }
}

function measureCommand(command: string, cwd: string): { seconds: number; processorSeconds: number } {
  // Descriptor 3 is stderr of this program, so that it shows the errors of a failed command.
  const shell = `TIMEFORMAT='%3R %3U %3S'; { time ${command} >/dev/null 2>&3; } 3>&2 2>&1`;
  const times = execFileSync('bash', ['-c', shell], { cwd, stdio: ['ignore', 'pipe', 'inherit'] })
    .toString()
    .trim()
    .split(' ')
    .map(Number);
  const [seconds = 0, user = 0, system = 0] = times;
  return { seconds, processorSeconds: user + system };
}

interface Start {
  child: ChildProcess;
  url: string;
  seconds: number;
  processorSeconds: number;
}

/** Resolves when the output contains the address. */
async function start(checkout: string): Promise<Start> {
  const startMs = performance.now();
  const child = spawn('npm', ['start'], {
    cwd: checkout,
    env: { ...process.env, PORT: '0', AGENT_PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  let screen = '';
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.on('data', (piece: Buffer) => {
      screen += piece.toString('utf8');
      const [, address] = /gateway +(http:\S+)/.exec(screen) ?? [];
      if (address !== undefined) resolve(address);
    });
    child.on('close', (code) => reject(new Error(`npm start exited with ${code}:\n${screen}`)));
  });
  const seconds = (performance.now() - startMs) / 1000;
  return { child, url, seconds, processorSeconds: processorSecondsOf(child.pid ?? 0) };
}

async function stop(child: ChildProcess): Promise<void> {
  const close = new Promise((resolve) => child.on('close', resolve));
  // npm and its shell are in the group of the server.
  process.kill(-(child.pid ?? 0), 'SIGINT');
  await close;
}

/**
 * Reads the time of a process, its descendants and their exited children; the clock has 100 ticks a second.
 */
function processorSecondsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  const ownTicks = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0);
  const children = readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean),
  );
  return ownTicks / 100 + children.reduce((sum, child) => sum + processorSecondsOf(Number(child)), 0);
}

/**
 * Measures the portal's first page: the time of its first request, which builds it if it does not exist, the
 * time of a second request, and its compressed bytes.
 */
async function measurePage(url: string): Promise<Round> {
  const page = `${url}/docs/`;
  const firstSeconds = await waitForPage(page);
  const curl = ['-sSL', '-H', 'accept: text/html', '-H', 'accept-encoding: gzip', '-o', '/dev/null'];
  const [bytes, seconds] = execFileSync('curl', [...curl, '-w', '%{size_download} %{time_total}', page])
    .toString()
    .split(' ');
  return {
    'page /docs/, first time, s': firstSeconds,
    'page /docs/, again, ms': Math.round(Number(seconds) * 10_000) / 10,
    'page /docs/, kB sent': Math.round(Number(bytes) / 102.4) / 10,
  };
}

/**
 * Resolves with the seconds until the answer is the page and not a notice of its build, which reloads itself.
 */
async function waitForPage(page: string): Promise<number> {
  const startedMs = performance.now();
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const response = await fetch(page, { headers: { accept: 'text/html' } });
    const text = await response.text();
    if (response.status === 200 && !/http-equiv="refresh"/.test(text))
      return (performance.now() - startedMs) / 1000;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`${page} was not built in two minutes.`);
}

function printTable(): void {
  console.log('|  | before | after |\n| --- | ---: | ---: |');
  for (const row of Object.keys(rounds.after[0] ?? {})) {
    const [before, after] = (['before', 'after'] as const).map((side) => {
      const middle = median(rounds[side].map((values) => values[row] ?? 0));
      return Math.round(middle * 100) / 100;
    });
    console.log(`| ${row} | ${before} | ${after} |`);
  }
}
