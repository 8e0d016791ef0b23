// The plugin `schedule`: instructions for later, once or again and again. The row says what is due and the job wakes
// whoever runs it; the row decides, so an occurrence is begun once however often its job comes.
import { CronExpressionParser } from 'cron-parser';
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import type { Jobs } from '../../../kernel/data/jobs.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import { definePlugin, type Plugin } from '../plugin.ts';
import type { Schedule, ScheduleStore } from '../store.ts';

export interface ScheduleNeeds {
  store: ScheduleStore;
  agentId: string;
  /** Called when there is something to wait for, and then once. */
  openJobs(): Promise<Jobs>;
  /** Begins a run that nobody attends and resolves once it is accepted. */
  execute(instructions: string): Promise<{ runId: string }>;
  clock: Clock;
  log: Log;
}

const mostSchedules = 1_000;
const longestDelaySeconds = 366 * 86_400;

type ScheduleInputs = {
  once: { instructions: string; at?: string; inSeconds?: number };
  repeat: { instructions: string; cron: string; timeZone?: string };
  list: object;
  cancel: { scheduleId: string };
};

export function schedule(needs: ScheduleNeeds): Plugin {
  const { store, clock, log } = needs;
  // Jobs of one agent are no other agent's, also where they share a database.
  const queue = `agent-schedule-${needs.agentId}`;
  let opened: Promise<Jobs> | undefined;

  function jobs(): Promise<Jobs> {
    opened ??= needs.openJobs().then((made) => {
      made.define<{ scheduleId: string; dueAt: string }>(
        queue,
        { retries: 5, concurrency: 4 },
        ({ scheduleId, dueAt }) => run(scheduleId, dueAt),
      );
      made.start();
      return made;
    });
    return opened;
  }

  async function run(scheduleId: string, dueAt: string): Promise<void> {
    const found = await store.find(scheduleId);
    if (!found || found.dueAt !== dueAt) return;
    // Accepted before it moves on: a crash between the two runs it again rather than never.
    const { runId } = await needs.execute(found.instructions);
    const next = found.cron === null ? null : nextTime(found.cron, found.timeZone, clock.now());
    if (!(await store.advance(scheduleId, new Date(dueAt), next))) return;
    await store.recordRun(scheduleId, runId);
    if (next !== null) await wake(scheduleId, next);
  }

  async function wake(scheduleId: string, dueAt: Date): Promise<void> {
    const delaySeconds = Math.max(0, Math.ceil((dueAt.getTime() - clock.now().getTime()) / 1000));
    const queueOf = await jobs();
    await queueOf.enqueue(
      queue,
      { scheduleId, dueAt: dueAt.toISOString() },
      { key: `${scheduleId}:${dueAt.toISOString()}`, delaySeconds },
    );
  }

  async function add(given: {
    instructions: string;
    cron: string | null;
    timeZone: string;
    dueAt: Date;
  }): Promise<Schedule> {
    if ((await store.listOpen()).length >= mostSchedules)
      throw refusal(`There are ${mostSchedules} schedules already, which is as many as are kept.`);
    const scheduleId = id('sch');
    await store.add({ scheduleId, ...given, instructions: given.instructions.toWellFormed() });
    await wake(scheduleId, given.dueAt);
    return (await store.find(scheduleId)) as Schedule;
  }

  const instructions = {
    type: 'string',
    minLength: 1,
    maxLength: 16_384,
    pattern: '^[^\\u0000]+$',
    description: 'What is to be done then, complete in itself.',
  };
  return definePlugin<ScheduleInputs>({
    name: 'schedule',
    title: 'Schedule',
    description: 'Has instructions carried out later, once or again and again.',
    actions: {
      once: {
        description:
          'Has instructions carried out once, at a time or after a while. Nobody attends that run.',
        api: true,
        command: true,
        needsApproval: true,
        input: {
          type: 'object',
          required: ['instructions'],
          properties: {
            instructions,
            at: { type: 'string', format: 'date-time' },
            inSeconds: { type: 'integer', minimum: 0, maximum: longestDelaySeconds },
          },
          oneOf: [{ required: ['at'] }, { required: ['inSeconds'] }],
          additionalProperties: false,
        },
        async run({ instructions: text, at, inSeconds = 0 }) {
          const nowMs = clock.now().getTime();
          const dueMs = at === undefined ? nowMs + inSeconds * 1000 : Date.parse(at);
          if (!(dueMs >= nowMs - 60_000 && dueMs <= nowMs + longestDelaySeconds * 1000))
            throw refusal('The time has to lie within a year from now.');
          return add({ instructions: text, cron: null, timeZone: 'UTC', dueAt: new Date(dueMs) });
        },
      },
      repeat: {
        description:
          'Has instructions carried out again and again, by a cron expression of five members. Nobody attends those runs.',
        api: true,
        command: true,
        needsApproval: true,
        input: {
          type: 'object',
          required: ['instructions', 'cron'],
          properties: {
            instructions,
            cron: {
              type: 'string',
              maxLength: 200,
              description: 'Minute, hour, day of the month, month, day of the week, such as `0 9 * * 1-5`.',
            },
            timeZone: {
              type: 'string',
              maxLength: 64,
              description: 'Such as `Europe/Berlin`; UTC unless given.',
            },
          },
          additionalProperties: false,
        },
        run: async ({ instructions: text, cron, timeZone = 'UTC' }) =>
          add({
            instructions: text,
            cron: cron.trim(),
            timeZone,
            dueAt: nextTime(cron, timeZone, clock.now()),
          }),
      },
      list: {
        description: 'Lists what is still to come, the next one first.',
        api: true,
        command: true,
        input: { type: 'object', additionalProperties: false },
        run: async () => ({ schedules: await store.listOpen() }),
      },
      cancel: {
        description: 'Takes a schedule back; a run that has begun goes on.',
        api: true,
        command: true,
        input: {
          type: 'object',
          required: ['scheduleId'],
          properties: { scheduleId: { type: 'string', maxLength: 64 } },
          additionalProperties: false,
        },
        async run({ scheduleId }) {
          if (!(await store.cancel(scheduleId)))
            throw refusal('There is no schedule with this id that is still to come.');
          return { cancelled: true };
        },
      },
    },
    async start() {
      const open = await store.listOpen();
      if (open.length === 0) return;
      // What is due has its job already, but for what a crash has cut off between the row and its job; an enqueue of
      // the same key changes nothing. It waits for the jobs, and the start of the agent does not wait for it.
      void Promise.all(
        open.map(async ({ scheduleId, dueAt }) => dueAt !== null && wake(scheduleId, new Date(dueAt))),
      ).catch((error: unknown) => log.warn({ err: error }, 'schedules could not be taken up'));
    },
    async stop() {
      await (await opened)?.stop({ timeoutMs: 3_000 });
    },
  });
}

function nextTime(cron: string, timeZone: string, after: Date): Date {
  if (cron.trim().split(/\s+/).length !== 5)
    throw refusal(
      'A cron expression has five members: minute, hour, day of the month, month and day of the week.',
    );
  try {
    return CronExpressionParser.parse(cron, { currentDate: after, tz: timeZone }).next().toDate();
  } catch (cause) {
    throw refusal('The cron expression or the time zone cannot be read.', cause);
  }
}

function refusal(message: string, cause?: unknown): Problem {
  return new Problem('impossible', 'action_refused', message, cause === undefined ? {} : { cause });
}
