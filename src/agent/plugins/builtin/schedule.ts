// The plugin `schedule`: instructions that run later, once or repeatedly.
import { definePlugin, everyCaller, type Action, type Plugin } from '../definition/plugin.ts';
import { nextOccurrence } from './cron.ts';
import {
  createScheduleRunner,
  maxSchedules,
  type ScheduleRunner,
  type ScheduleRunnerOptions,
} from './schedule-runner.ts';
import type { Schedule } from './store.ts';

const maxDelaySeconds = 366 * 86_400;
// A time that has passed by no more than this is due at once.
const pastToleranceMs = 60_000;

type ScheduleInputs = {
  once: { instructions: string; at?: string; inSeconds?: number };
  repeat: { instructions: string; cron: string; timeZone?: string };
  list: object;
  cancel: { scheduleId: string };
};

const instructionsSchema = {
  type: 'string',
  minLength: 1,
  maxLength: 16_384,
  pattern: '^[^\\u0000]+$',
  description: 'The instructions, complete without other context.',
};
const onceSchema = {
  type: 'object',
  required: ['instructions'],
  properties: {
    instructions: instructionsSchema,
    at: { type: 'string', format: 'date-time' },
    inSeconds: { type: 'integer', minimum: 0, maximum: maxDelaySeconds },
  },
  oneOf: [{ required: ['at'] }, { required: ['inSeconds'] }],
  additionalProperties: false,
};
const repeatSchema = {
  type: 'object',
  required: ['instructions', 'cron'],
  properties: {
    instructions: instructionsSchema,
    cron: {
      type: 'string',
      maxLength: 200,
      description: 'Minute, hour, day of the month, month, day of the week, such as `0 9 * * 1-5`.',
    },
    timeZone: {
      type: 'string',
      maxLength: 64,
      description: 'Such as `Europe/Berlin`; UTC by default.',
    },
  },
  additionalProperties: false,
};

export function schedule(options: ScheduleRunnerOptions): Plugin {
  const runner = createScheduleRunner(options);
  return definePlugin<ScheduleInputs>({
    name: 'schedule',
    title: 'Schedule',
    description: 'Schedules instructions to run later, once or repeatedly.',
    actions: { ...addingActions(options, runner), ...listingActions(options) },
    start: () => runner.resume(),
    stop: () => runner.stop(),
  });
}

type ScheduleActions<Name extends keyof ScheduleInputs> = { [Key in Name]: Action<ScheduleInputs[Key]> };

function addingActions(
  { clock }: ScheduleRunnerOptions,
  runner: ScheduleRunner,
): ScheduleActions<'once' | 'repeat'> {
  async function addOrRefuse(
    schedule: Parameters<ScheduleRunner['add']>[0],
    refuse: (reason: string) => never,
  ): Promise<Schedule> {
    const storedSchedule = await runner.add(schedule);
    return (
      storedSchedule ?? refuse(`There are already ${maxSchedules} schedules, the maximum; cancel one first.`)
    );
  }

  return {
    once: {
      description: 'Schedules instructions to run once, at a time or after a delay. The run is unattended.',
      ...everyCaller,
      needsApproval: true,
      input: onceSchema,
      async run({ instructions, at, inSeconds = 0 }, { refuse }) {
        const nowMs = clock.now().getTime();
        const dueMs = at === undefined ? nowMs + inSeconds * 1000 : Date.parse(at);
        // The negation also refuses a time that `Date.parse` does not accept, such as one with a leap second.
        if (!(dueMs >= nowMs - pastToleranceMs && dueMs <= nowMs + maxDelaySeconds * 1000))
          refuse('The time must be in the future and at most a year from now.');
        const text = instructions.toWellFormed();
        return addOrRefuse(
          { instructions: text, cron: null, timeZone: 'UTC', dueAt: new Date(dueMs) },
          refuse,
        );
      },
    },
    repeat: {
      description:
        'Schedules instructions to run repeatedly by a cron expression of five fields. The runs are unattended.',
      ...everyCaller,
      needsApproval: true,
      input: repeatSchema,
      async run({ instructions, cron, timeZone = 'UTC' }, { refuse }) {
        const dueAt = nextOccurrence(cron, timeZone, clock.now());
        const text = instructions.toWellFormed();
        return addOrRefuse({ instructions: text, cron: cron.trim(), timeZone, dueAt }, refuse);
      },
    },
  };
}

function listingActions({ store }: ScheduleRunnerOptions): ScheduleActions<'list' | 'cancel'> {
  return {
    list: {
      description: 'Lists the pending schedules, the next one first.',
      readOnly: true,
      ...everyCaller,
      input: { type: 'object', additionalProperties: false },
      run: async () => ({ schedules: await store.listOpen() }),
    },
    cancel: {
      description: 'Cancels a schedule; a run that has started continues.',
      ...everyCaller,
      input: {
        type: 'object',
        required: ['scheduleId'],
        properties: { scheduleId: { type: 'string', maxLength: 64 } },
        additionalProperties: false,
      },
      async run({ scheduleId }, { refuse }) {
        if (!(await store.cancel(scheduleId))) refuse('There is no pending schedule with this id.');
        return { cancelled: true };
      },
    },
  };
}
