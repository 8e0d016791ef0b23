// Runs scheduled instructions. A row stores the next occurrence, and a job wakes a worker at that
// time. The row decides: each occurrence starts one run, however often its job is delivered.
import type { Clock } from '../../../kernel/clock.ts';
import type { Jobs } from '../../../kernel/data/jobs.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Schedule, ScheduleStore } from './store.ts';
import { nextOccurrence } from './cron.ts';

export interface ScheduleRunner {
  /** Stores a schedule and its first job. */
  add(schedule: {
    instructions: string;
    cron: string | null;
    timeZone: string;
    dueAt: Date;
  }): Promise<Schedule>;
  /** Enqueues the jobs of all open schedules, in the background. */
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

export function createScheduleRunner({
  store,
  agentId,
  openJobs,
  execute,
  clock,
  log,
}: ScheduleRunnerOptions): ScheduleRunner {
  // Agents that share a database have separate queues.
  const queue = `agent-schedule-${agentId}`;
  let jobs: Promise<Jobs> | undefined;

  async function startJobs(): Promise<Jobs> {
    const worker = await openJobs();
    worker.define<{ scheduleId: string; dueAt: string }>(
      queue,
      { retries: 5, concurrency: 4 },
      ({ scheduleId, dueAt }) => runOccurrence(scheduleId, dueAt),
    );
    worker.start();
    return worker;
  }

  async function runOccurrence(scheduleId: string, dueAt: string): Promise<void> {
    const schedule = await store.find(scheduleId);
    if (!schedule || schedule.dueAt !== dueAt) return;
    // Submit before advancing: a crash between the two repeats the occurrence instead of losing it.
    const { runId } = await execute(schedule.instructions);
    const { cron, timeZone } = schedule;
    const next = cron === null ? null : nextOccurrence(cron, timeZone, clock.now());
    if (!(await store.advance(scheduleId, new Date(dueAt), next))) return;
    await store.recordRun(scheduleId, runId);
    if (next !== null) await enqueue(scheduleId, next);
  }

  async function enqueue(scheduleId: string, dueAt: Date): Promise<void> {
    const delaySeconds = Math.max(0, Math.ceil((dueAt.getTime() - clock.now().getTime()) / 1000));
    const job = { scheduleId, dueAt: dueAt.toISOString() };
    jobs ??= startJobs();
    await (await jobs).enqueue(queue, job, { key: `${scheduleId}:${job.dueAt}`, delaySeconds });
  }

  return {
    async add(schedule) {
      const scheduleId = id('sch');
      await store.add({ scheduleId, ...schedule });
      await enqueue(scheduleId, schedule.dueAt);
      return (await store.find(scheduleId)) as Schedule;
    },
    async resume() {
      const openTasks = await store.listOpen();
      // A crash may have come between a row and its job; a job of the same key is enqueued only
      // once. Opening the jobs takes a while, so the agent's start does not wait for it.
      void Promise.all(
        openTasks.map(
          async ({ scheduleId, dueAt }) => dueAt !== null && enqueue(scheduleId, new Date(dueAt)),
        ),
      ).catch((error: unknown) => log.warn({ err: error }, 'schedules could not be enqueued'));
    },
    async stop() {
      await (await jobs)?.stop({ timeoutMs: 3_000 });
    },
  };
}
