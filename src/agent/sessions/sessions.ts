// The room's handlers. An instruction becomes a run; how long the caller waits for it is the only thing decided here.
import type { Clock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Service } from '../service.ts';
import type { Runs } from './runs.ts';

export interface SessionsNeeds {
  runs: Runs;
  /** The model of instructions that name none. */
  defaultModel: string;
  /** After this a waiting caller gets a receipt, and the run goes on. */
  executeWaitMs: number;
  clock: Clock;
}

export function sessions({ runs, defaultModel, executeWaitMs, clock }: SessionsNeeds): Service<'sessions'> {
  return {
    name: 'sessions',
    handlers: {
      'sessions.execute': async ({ body, signal }) => {
        const { settled, ...ids } = await runs.start({ instructions: body.instructions, modelId: body.model ?? defaultModel });
        const answered = new AbortController();
        const patience = clock.sleep(executeWaitMs, AbortSignal.any([signal, answered.signal])).then(
          () => 'waiting' as const,
          () => 'gone' as const,
        );
        const end = await Promise.race([settled, patience]);
        answered.abort();
        if (end === 'waiting') return { status: 202, body: { success: true, queued: false, ...ids } };
        // Nobody reads this but a caller that was cut off by the end of a drain; the run settles by itself.
        if (end === 'gone') throw new Problem('unavailable', 'draining', `The agent is going down. (${ids.runId})`, { headers: { 'retry-after': '1' } });
        if (end instanceof Problem) throw end;
        return { status: 200, body: { success: true, queued: false, ...ids, ...end } };
      },
    },
  };
}
