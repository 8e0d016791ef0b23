// The runner of schedules over a store and a job queue in memory, with failures that a database causes.
import { describe, expect, test } from 'vitest';
import { createScheduleRunner } from '../../../src/agent/plugins/builtin/schedule-runner.ts';
import type { Schedule, ScheduleStore } from '../../../src/agent/plugins/builtin/store.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { Jobs } from '../../../src/kernel/data/jobs.ts';
import { silentLog } from '../../support/databases.ts';

type Job = { scheduleId: string; dueAt: string };

const firstTime = new Date('2026-01-05T09:00:00Z');

function createWorld() {
  const rows = new Map<string, Schedule>();
  const store: ScheduleStore = {
    async add({ dueAt, ...schedule }, { enqueue }) {
      const row = { ...schedule, dueAt: dueAt.toISOString(), lastRunId: null };
      await enqueue(undefined as never);
      rows.set(schedule.scheduleId, row);
      return row;
    },
    find: async (scheduleId) => rows.get(scheduleId),
    listOpen: async () => [...rows.values()].filter(({ dueAt }) => dueAt !== null),
    async advance(scheduleId, dueAt, next) {
      const row = rows.get(scheduleId);
      if (row?.dueAt !== dueAt.toISOString()) return false;
      row.dueAt = next?.toISOString() ?? null;
      return true;
    },
    recordRun: async () => {},
    cancel: async () => true,
  };
  const queue = { jobs: [] as Job[], isFailing: false };
  let deliver: (job: Job) => Promise<void> = async () => {};
  const jobs: Pick<Jobs, 'define' | 'start' | 'ready' | 'enqueue'> = {
    define(_name, _policy, handler) {
      deliver = handler as never;
    },
    start() {},
    async ready() {},
    async enqueue(_name, data) {
      if (queue.isFailing) throw new Error('the database is unavailable');
      queue.jobs.push(data as Job);
      return 'job';
    },
  };
  const executions: string[] = [];
  const runner = createScheduleRunner({
    store,
    agentId: 'agt',
    openJobs: async () => jobs as Jobs,
    async execute(instructions) {
      executions.push(instructions);
      return { runId: 'run' };
    },
    clock: systemClock,
    log: silentLog,
  });
  return { rows, runner, queue, executions, deliver: (job: Job) => deliver(job) };
}

describe('the runner of schedules', () => {
  test('enqueues the next occurrence when a failed job is delivered again', async () => {
    const { rows, runner, queue, executions, deliver } = createWorld();
    await runner.add({ instructions: 'Report.', cron: '0 9 * * *', timeZone: 'UTC', dueAt: firstTime });
    const [firstJob] = queue.jobs.splice(0) as [Job];
    queue.isFailing = true;
    await expect(deliver(firstJob)).rejects.toThrow('unavailable');
    queue.isFailing = false;
    await deliver(firstJob);
    expect(executions).toEqual(['Report.']);
    expect(queue.jobs).toEqual([
      { scheduleId: firstJob.scheduleId, dueAt: rows.get(firstJob.scheduleId)?.dueAt },
    ]);
  });

  test('enqueues nothing for a job of a schedule that is over', async () => {
    const { runner, queue, executions, deliver } = createWorld();
    await runner.add({ instructions: 'Once.', cron: null, timeZone: 'UTC', dueAt: firstTime });
    const [job] = queue.jobs.splice(0) as [Job];
    await deliver(job);
    await deliver(job);
    expect([executions, queue.jobs]).toEqual([['Once.'], []]);
  });
});
