// Faults that may affect money, one at a time: each scenario runs gateway processes on a database
// of its own, causes one fault, and compares the responses that clients received with the ledger.
// Exits 1 when they disagree.
//
//   node test/fault-injection/money-faults.ts [--seed N] [NAME…]
//
// Without names it runs all scenarios; a wrong name prints the names of all.
import { exitWithUsageError, parseCommandLine } from '../../scripts/command-line.ts';
import { startInstalledPostgres } from '../support/installed-postgres.ts';
import { startServer } from '../support/postgres-server.ts';
import { seededRandom } from './random.ts';
import { deduction, loweredCap, refund, sixtyKeys } from './money/balances.ts';
import { clockAhead } from './money/clock-ahead.ts';
import { lostJournal } from './money/lost-journal.ts';
import { journalErrors } from './money/journal-errors.ts';
import { lostAnswers } from './money/lost-answers.ts';
import { pauses } from './money/pauses.ts';
import { restoredLedger } from './money/restore.ts';
import { runScenario, type Scenario } from './money/scenario.ts';

const scenarios: Record<string, Scenario> = {
  'sixty-keys': sixtyKeys,
  deduction,
  refund,
  'lowered-cap': loweredCap,
  'lost-answers': lostAnswers,
  'journal-errors': journalErrors,
  'clock-ahead': clockAhead,
  restored: restoredLedger,
  'lost-journal': lostJournal,
  pauses,
};

const { values, positionals } = parseCommandLine(import.meta.filename, {
  options: { seed: { type: 'string' } },
  allowPositionals: true,
});
const unknownName = positionals.find((name) => !Object.hasOwn(scenarios, name));
if (unknownName !== undefined)
  exitWithUsageError(
    import.meta.filename,
    `there is no scenario "${unknownName}" among ${Object.keys(scenarios).join(', ')}`,
  );
const names = positionals.length > 0 ? positionals : Object.keys(scenarios);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
console.log(`seed ${seed}`);
const random = seededRandom(seed);
const failures: string[] = [];
const server = await startServer();
try {
  for (const name of names) {
    const startedMs = performance.now();
    console.log(`\n${name}`);
    failures.push(...(await run(name)));
    console.log(`       ${Math.round((performance.now() - startedMs) / 1_000)} s`);
  }
} finally {
  await server.stop();
}
console.log(failures.length === 0 ? `passed, seed ${seed}` : `failed, seed ${seed}`);
process.exit(failures.length === 0 ? 0 : 1);

async function run(name: string): Promise<readonly string[]> {
  const scenario = scenarios[name] as Scenario;
  if (name !== 'restored') return runScenario(server.url, scenario, random);
  // A backup needs pg_dump of the server's release.
  const installedPostgres = await startInstalledPostgres();
  if (installedPostgres === null) {
    console.log('SKIPPED: no PostgreSQL with pg_dump is installed here');
    return [];
  }
  try {
    return await runScenario(installedPostgres.url, scenario, random);
  } finally {
    await installedPostgres.stop();
  }
}
