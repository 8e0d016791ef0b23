// Compares chat completions through the gateway with calls to the provider itself, through a bare relay and
// through Portkey, alternating in one run. It installs the peer under build/bench, prints the table with the
// targets, and writes build/bench/calls.json. Warming up takes a minute, and each round about 100 seconds
// with all parts on both databases; `--rounds 1` is done in three minutes.
//
//   npm run bench -- [--rounds N] [--seconds S] [--parts LIST] [--engines LIST] [--no-peer] [--write]
//
//   --rounds N      measured rounds after those that warm up (3)
//   --seconds S     duration of each load (4)
//   --parts LIST    calls: whole answers, by 1 and by 32 clients; streams: first byte, and streams by 16
//                   clients; empty: requests that are refused before any model (calls,streams,empty)
//   --engines LIST  databases of the gateway (embedded,postgres)
//   --no-peer       without Portkey; nothing is installed
//   --write         also writes docs/benchmarks.md and docs/diagrams/benchmarks.svg; parts that were not
//                   measured stay empty
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { join } from 'node:path';
import { exitWithUsageError, parseCommandLine } from '../../scripts/command-line.ts';
import { allParts, measureTarget, type Part } from './calls/measure.ts';
import { installPortkey } from './calls/peers.ts';
import {
  checkTargets,
  drawPlot,
  formatTable,
  formatTargets,
  type TargetRounds,
  toResults,
} from './calls/report.ts';
import { type Bench, type Engine, openBench, type Target } from './calls/targets.ts';

const allEngines: readonly Engine[] = ['embedded', 'postgres'];
const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '4' },
    parts: { type: 'string', default: allParts.join(',') },
    engines: { type: 'string', default: allEngines.join(',') },
    'no-peer': { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
  },
});

const root = join(import.meta.dirname, '../..');

async function startTargets(bench: Bench, engines: readonly Engine[]): Promise<Target[]> {
  const targets = [bench.provider, await bench.startRelay()];
  if (!options['no-peer']) targets.push(await bench.startPortkey(installPortkey()));
  for (const engine of engines)
    for (const isPaid of [false, true]) targets.push(await bench.startGateway({ engine, isPaid }));
  return targets;
}

/** The items of a comma-separated option, in the order of `allItems`. */
function readList<Item extends string>(option: 'parts' | 'engines', allItems: readonly Item[]): Item[] {
  const items = options[option].split(',');
  const unknownItem = items.find((name) => !allItems.some((item) => item === name));
  if (unknownItem !== undefined)
    exitWithUsageError(
      import.meta.filename,
      `--${option} has no "${unknownItem}" among ${allItems.join(', ')}`,
    );
  return allItems.filter((item) => items.includes(item));
}

/**
 * Two short warm-up rounds with a restart of the gateway between them. Afterwards the gateway has
 * data, and its heap and compiled code come from one kind of load.
 */
async function warmUp(target: Target, parts: readonly Part[]): Promise<void> {
  await measureTarget(target, { seconds: 1, parts });
  if (target.restart === undefined) return;
  await target.restart();
  await measureTarget(target, { seconds: 2, parts });
}

async function runRounds(targets: readonly Target[], parts: readonly Part[]): Promise<TargetRounds[]> {
  for (const target of targets) await warmUp(target, parts);
  const targetRounds = targets.map(({ name }): TargetRounds => ({ name, rounds: [] }));
  for (let round = 1; round <= Number(options.rounds); round += 1) {
    for (const [index, target] of targets.entries()) {
      const figures = await measureTarget(target, { seconds: Number(options.seconds), parts });
      targetRounds[index]?.rounds.push(figures);
      const [calls, streams] = [figures.perSecond, figures.streamsPerSecond].map(
        (rate) => rate?.toFixed(0) ?? '–',
      );
      console.error(
        `round ${round} of ${options.rounds}, ${target.name}: ${calls} calls/s, ${streams} streams/s`,
      );
    }
  }
  return targetRounds;
}

function describeRun(): string {
  const load = loadavg()
    .map((value) => value.toFixed(1))
    .join(' ');
  const cores = `${cpus().length} cores (${cpus()[0]?.model ?? 'unknown'})`;
  return `Node ${process.version}, ${cores}, load ${load}, ${options.rounds} rounds in turns, medians.`;
}

const introduction = `# Benchmarks
Each row is a process of its own between one load generator and one scripted provider, on the same cores. All
rows are measured in turns in one run, so compare rows and ratios, never one figure with one of another
machine. The gateway runs with its defaults: token, validation, access log, usage record; "paid" adds the
reservation and the charge of each call. Repeat it with \`npm run bench -- --write\`.
`;

async function main(): Promise<void> {
  const parts = readList('parts', allParts);
  const engines = readList('engines', allEngines);
  const bench = await openBench();
  try {
    const rounds = await runRounds(await startTargets(bench, engines), parts);
    const results = toResults(rounds);
    const targets = checkTargets(results);
    const text = `${describeRun()}\n\n${formatTable(results)}\n\n${formatTargets(targets)}\n`;
    console.log(text);
    mkdirSync(join(root, 'build/bench'), { recursive: true });
    writeFileSync(join(root, 'build/bench/calls.json'), JSON.stringify({ rounds, targets }, null, 2));
    if (!options.write) return;
    writeFileSync(
      join(root, 'docs/benchmarks.md'),
      `${introduction}\n![Calls a second](diagrams/benchmarks.svg)\n\n${text}`,
    );
    writeFileSync(join(root, 'docs/diagrams/benchmarks.svg'), drawPlot(results));
  } finally {
    await bench.close();
  }
}

await main();
