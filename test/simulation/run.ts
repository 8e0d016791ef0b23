// Runs many schedules, shrinks the first failing ones and reports what was covered.
import { writeFileSync } from 'node:fs';
import { createCoverage, type Coverage } from './coverage.ts';
import { missingStates } from './expected-states.ts';
import type { LedgerModules } from './gateway.ts';
import { drawSchedule, printSchedule, type Schedule } from './schedule.ts';
import { shrink } from './shrink.ts';
import { simulate } from './simulate.ts';

export interface RunOptions {
  firstSeed: number;
  schedules: number;
  seconds: number;
  /** Prints what happens in each schedule. */
  isTraced: boolean;
  /** Set for planted bugs: the run stops at the first failure and does not shrink it. */
  isExploring: boolean;
  /** The file for the counts of passed and failed checks, in the format of the test runner's report. */
  report: string | undefined;
}

const maximumFailures = 3;
/** A run of at least this many schedules fails unless it reached every expected state. */
const completeSchedules = 5_000;

/** Returns the exit code: 1 when a schedule failed or a state was not reached. */
export async function runSchedules(modules: LedgerModules, options: RunOptions): Promise<number> {
  const { firstSeed, isTraced, isExploring } = options;
  // The schedules create a thousand errors a second on purpose, and stack traces would slow them down.
  if (!isTraced) Error.stackTraceLimit = 0;
  const coverage = createCoverage();
  const startedMs = performance.now();
  const cpuStart = process.cpuUsage();
  let [schedules, steps, virtualMs] = [0, 0, 0];
  const failures: { schedule: Schedule; failure: string }[] = [];
  while (schedules < options.schedules && performance.now() - startedMs < options.seconds * 1_000) {
    const schedule = drawSchedule(firstSeed + schedules);
    const result = await simulate({ schedule, modules, coverage, ...(isTraced && { trace: print }) });
    schedules += 1;
    steps += result.steps;
    virtualMs += result.durationMs;
    if (result.failure === null) continue;
    print(`seed ${schedule.seed}: ${result.failure}`);
    failures.push({ schedule, failure: result.failure });
    if (isExploring || failures.length === maximumFailures) break;
  }
  const seconds = (performance.now() - startedMs) / 1_000;
  const cpu = process.cpuUsage(cpuStart);
  if (!isExploring && !isTraced && failures[0] !== undefined) await explain(modules, failures[0].schedule);
  const missingCoverage = schedules >= completeSchedules ? missingStates(coverage) : [];
  if (schedules > 1) printCoverage(coverage, missingCoverage);
  print(
    `${schedules} schedules from seed ${firstSeed}, ${failures.length} failed; ` +
      `${Math.round(steps / schedules)} steps and ${Math.round(virtualMs / schedules / 1_000)} virtual seconds each; ` +
      `${Math.round(schedules / seconds)} schedules a second ` +
      `(${((cpu.user + cpu.system) / 1_000 / schedules).toFixed(1)} ms of processor time each)`,
  );
  // All states that were not reached count as one failure.
  const failedCount = failures.length + (missingCoverage.length > 0 ? 1 : 0);
  if (options.report !== undefined) writeReport(options.report, schedules - failures.length, failedCount);
  return failedCount > 0 ? 1 : 0;
}

/** Prints the smallest schedule that fails, and what happens in it. */
async function explain(modules: LedgerModules, schedule: Schedule): Promise<void> {
  const isFailing = async (candidate: Schedule): Promise<boolean> =>
    (await simulate({ schedule: candidate, modules })).failure !== null;
  const smallestSchedule = await shrink(schedule, isFailing);
  const [before, after] = [schedule.actions.length, smallestSchedule.actions.length];
  print(`\nseed ${schedule.seed}, shrunk from ${before} to ${after} actions:`);
  print(printSchedule(smallestSchedule));
  const { failure } = await simulate({ schedule: smallestSchedule, modules, trace: print });
  print(`${failure}\n`);
}

function printCoverage(coverage: Coverage, missingCoverage: readonly string[]): void {
  for (const [state, times] of [...coverage.counts()].toSorted(([a], [b]) => (a < b ? -1 : 1)))
    print(`${String(times).padStart(10)}  ${state}`);
  for (const state of missingCoverage) print(`         0  ${state}: never reached`);
}

/** Reports one passed check when nothing failed, otherwise a failed check for each failure. */
function writeReport(file: string, passedCount: number, failedCount: number): void {
  const report = {
    numPassedTests: failedCount === 0 && passedCount > 0 ? 1 : 0,
    numFailedTests: failedCount,
    testResults: [],
  };
  writeFileSync(file, JSON.stringify(report));
}

function print(line: string): void {
  console.log(line);
}
