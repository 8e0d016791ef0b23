// Runs simulated schedules of the ledger one after the other. The schedule of a failing seed is shrunk and
// printed with its trace. Without --seed the first seed comes from the time of day, so that each run tries
// other schedules. With --seed only that schedule runs, unless --schedules is given.
//
//   npm run test:simulation -- [--seed N] [--schedules N] [--seconds N] [--bug NAME] [--report FILE] [--trace]
import { parseCommandLine } from '../../scripts/command-line.ts';
import { loadLedger, plantBug } from './load.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    seed: { type: 'string' },
    schedules: { type: 'string' },
    seconds: { type: 'string' },
    bug: { type: 'string' },
    report: { type: 'string' },
    trace: { type: 'boolean' },
  },
});
if (values.bug !== undefined) plantBug(values.bug);
const modules = await loadLedger();
const { runSchedules } = await import('./run.ts');
process.exitCode = await runSchedules(modules, {
  firstSeed: values.seed === undefined ? rotatingSeed() : Number(values.seed),
  schedules: Number(values.schedules ?? (values.seed === undefined ? Number.MAX_SAFE_INTEGER : 1)),
  seconds: Number(values.seconds ?? 120),
  isTraced: values.trace === true,
  isExploring: values.bug !== undefined,
  report: values.report,
});

/** Seeds from the time of day, a million apart for each second. */
function rotatingSeed(): number {
  return (Math.floor(Date.now() / 1_000) % 2_000) * 1_000_000;
}
