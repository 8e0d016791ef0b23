// Runs scheduled instructions. A row stores the next occurrence, and a job wakes a worker at that
// time. The row decides what runs: a job that is delivered again after its occurrence runs nothing.
import type { Clock } from '../../../kernel/clock.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Jobs } from '../../../kernel/data/jobs.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import type { NewSchedule, Schedule, ScheduleStore } from './store.ts';
import { nextOccurrence } from './cron.ts';

export const maxSchedules = 1_000;

export interface ScheduleRunner {
  /** Stores a schedule and its first job. Returns null when there are already `maxSchedules` open ones. */
  add(schedule: Omit<NewSchedule, 'scheduleId'>): Promise<Schedule | null>;
  /** Enqueues the jobs of all open schedules again, in the background. */
  resume(): Promise<void>;
  stop(): Promise<void>;
}

export interface ScheduleRunnerOptions {
  store: ScheduleStore;
  agentId: string;
  /** Called once, when the first job is enqueued. */
  openJobs(): Promise<Jobs>;
  /** Submits an unattended run and resolves once it is accepted. */
  execute(instructions: string): Promise<{ runId: string }>;
  clock: Clock;
  log: Log;
}

interface RunnerState extends ScheduleRunnerOptions {
  /** Agents that share a database have separate queues. */
  queue: string;
  jobs: Promise<Jobs> | undefined;
}

export function createScheduleRunner(options: ScheduleRunnerOptions): ScheduleRunner {
  const { store, agentId, log } = options;
  const state: RunnerState = { ...options, queue: `agent-schedule-${agentId}`, jobs: undefined };
  return {
    async add(schedule) {
      const scheduleId = id('sch');
      // A job can be enqueued in a transaction only once the queue has started.
      await (await openQueue(state)).ready();
      return store.add(
        { scheduleId, ...schedule },
        { maxOpen: maxSchedules, enqueue: (tx) => enqueue(state, { scheduleId, dueAt: schedule.dueAt }, tx) },
      );
    },
    async resume() {
      const openSchedules = await store.listOpen();
      // A crash may have happened after a row was advanced and before its job was enqueued. Jobs that
      // exist already have the same key and are not added twice. The agent's start does not wait,
      // since opening the job queue takes a while.
      void Promise.all(
        openSchedules.map(
          async ({ scheduleId, dueAt }) =>
            dueAt !== null && enqueue(state, { scheduleId, dueAt: new Date(dueAt) }),
        ),
      ).catch((error: unknown) => log.warn({ err: error }, 'schedules could not be enqueued'));
    },
    async stop() {
      await (await state.jobs)?.stop({ timeoutMs: 3_000 });
    },
  };
}

async function enqueue(
  state: RunnerState,
  { scheduleId, dueAt }: { scheduleId: string; dueAt: Date },
  tx?: Tx,
): Promise<void> {
  const delaySeconds = Math.max(0, Math.ceil((dueAt.getTime() - state.clock.now().getTime()) / 1000));
  const job = { scheduleId, dueAt: dueAt.toISOString() };
  const jobs = await openQueue(state);
  const options = { key: `${scheduleId}:${job.dueAt}`, delaySeconds };
  await jobs.enqueue(state.queue, job, tx === undefined ? options : { ...options, tx });
}

function openQueue(state: RunnerState): Promise<Jobs> {
  state.jobs ??= startJobs(state);
  return state.jobs;
}

async function startJobs(state: RunnerState): Promise<Jobs> {
  const jobs = await state.openJobs();
  jobs.define<{ scheduleId: string; dueAt: string }>(
    state.queue,
    { retries: 5, concurrency: 4 },
    ({ scheduleId, dueAt }) => runOccurrence(state, scheduleId, dueAt),
  );
  jobs.start();
  return jobs;
}

async function runOccurrence(state: RunnerState, scheduleId: string, dueAt: string): Promise<void> {
  const { store, execute, clock } = state;
  const schedule = await store.find(scheduleId);
  if (!schedule || schedule.dueAt === null) return;
  // An earlier delivery of this job has moved the row on, but may have failed before it enqueued the next
  // job.
  if (schedule.dueAt !== dueAt) return enqueue(state, { scheduleId, dueAt: new Date(schedule.dueAt) });
  // Submit the run before moving the row on: a crash between the two repeats the occurrence instead
  // of losing it.
  const { runId } = await execute(schedule.instructions);
  const { cron, timeZone } = schedule;
  const next = cron === null ? null : nextOccurrence(cron, timeZone, clock.now());
  if (!(await store.advance(scheduleId, new Date(dueAt), next))) return;
  await store.recordRun(scheduleId, runId);
  if (next !== null) await enqueue(state, { scheduleId, dueAt: next });
}
