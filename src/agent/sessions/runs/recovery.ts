// What keeps runs going that nobody looks after: those of a process that is gone are settled, inputs that have waited too
// long are let go, and a session in which something waits and nothing runs goes on.
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { readEvent } from '../event-log/events.ts';
import type { Committer } from '../event-log/committer.ts';
import { readCheckpoints, runEvents } from '../event-log/store.ts';
import type { SessionRecord, SessionStore } from '../event-log/session-store.ts';
import { foldEvents } from '../model-loop/message.ts';
import type { StartedRun } from './admission.ts';
import {
  noUsage,
  settle,
  removeFromQueue,
  startQueued,
  type Settlement,
  type SettlementRules,
} from './settlement.ts';
import { isAbandoned, type RunRecord, type RunStore } from './store.ts';

export interface UpkeepNeeds {
  store: SessionStore;
  runStore: RunStore;
  committer: Committer;
  rules: SettlementRules;
  limits: { leaseMs: number; keptDays: number };
  /** Whether another living process may have runs of this agent; if not, every open run at start is a dead one's. */
  hasReplicas: boolean;
  /** The runs of this process. */
  own: OwnRuns;
  /** Called for a session that nobody needs any more. */
  forget(session: SessionRecord): Promise<void>;
  /** Ends all of it. */
  closing: AbortSignal;
  clock: Clock;
  log: Log;
}

export interface OwnRuns {
  /** One that runs here, or that a transaction under way gives to this process. */
  has(runId: string): boolean;
  isEmpty(): boolean;
  /** Whether as many run as may. */
  isFull(): boolean;
  begin(started: StartedRun): void;
  cancel(runId: string): void;
}

export interface Upkeep {
  /** Looks once at everything. */
  sweep(): Promise<void>;
  /** This process may have left something behind itself; the next round looks for it. */
  suspect(): void;
  /** The input that has to be let go first has this long. */
  expireIn(ms: number): void;
  /** Goes on looking until it is all closing; what is to be waited for then. */
  keep(): Promise<void>[];
}

export function createUpkeep({
  store,
  runStore,
  committer,
  rules,
  limits,
  hasReplicas,
  own,
  forget,
  closing,
  clock,
  log,
}: UpkeepNeeds): Upkeep {
  const {
    agentId,
    holder: { instanceId },
  } = rules;
  let hasOrphans = false;
  let nextExpiryMs = Number.POSITIVE_INFINITY;

  async function interrupt(run: RunRecord): Promise<void> {
    const written = await committer.commit((unit) =>
      settle(
        unit,
        run,
        async () => {
          if (!(await isAbandoned(unit, run.runId, { instanceId, trustLeases: hasReplicas }))) return null;
          const [events, open] = [await runEvents(unit.tx, run), await readCheckpoints(unit.tx, run.runId)];
          return interruption(run, events.map(readEvent), open);
        },
        rules,
      ),
    );
    if (written === null) return;
    log.warn({ runId: run.runId }, 'settled a run that its process had left behind');
    if (written.next) own.begin(written.next);
  }

  async function sweep(): Promise<void> {
    hasOrphans = false;
    for (const run of await runStore.abandonedRuns({ agentId, instanceId, trustLeases: hasReplicas })) {
      // Asked after the query and not in it: a run is known here before it is written, so none that has only just
      // become visible is taken for nobody's.
      if (own.has(run.runId)) continue;
      await interrupt(run);
    }
    if (!rules.mayContinue()) return;
    await expireInputs();
    for (const sessionKey of await runStore.idleQueues(agentId)) {
      if (own.isFull()) {
        hasOrphans = true;
        return;
      }
      const started = await committer.commit((unit) => startQueued(unit, sessionKey, rules));
      if (started) own.begin(started);
    }
  }

  /** What has waited too long is let go; the next that will is looked after in its time. */
  async function expireInputs(): Promise<void> {
    for (const [sessionKey, runIds] of await runStore.expiredInputs(agentId))
      await committer.commit((unit) => removeFromQueue(unit, agentId, sessionKey, runIds, 'expired'));
    const nextMs = await runStore.nextExpiryMs(agentId);
    if (nextMs !== null) expireIn(nextMs);
  }

  function expireIn(ms: number): void {
    const dueMs = clock.monotonicMs() + Math.max(0, ms);
    if (dueMs >= nextExpiryMs) return;
    nextExpiryMs = dueMs;
    clock.sleep(Math.max(1, ms), closing).then(
      async () => {
        // One that was asked for later, and for an earlier time, has done it.
        if (nextExpiryMs !== dueMs) return;
        nextExpiryMs = Number.POSITIVE_INFINITY;
        await expireInputs().catch((error: unknown) => {
          log.warn({ err: error }, 'inputs that have waited too long could not be let go');
          expireIn(1_000);
        });
      },
      () => {},
    );
  }

  // While it runs: keeps this process's leases, looks after runs whose lease nobody keeps, hears who wants runs ended.
  async function keepLeases(): Promise<void> {
    while (!closing.aborted) {
      await clock.sleep(limits.leaseMs / 4, closing).catch(() => {});
      if (closing.aborted) return;
      try {
        if (hasReplicas && !own.isEmpty()) await runStore.renewLeases(instanceId, limits.leaseMs);
        if (hasReplicas || hasOrphans) await sweep();
      } catch (thrown) {
        hasOrphans = true;
        log.warn({ err: thrown }, 'the leases of runs could not be kept');
      }
    }
  }

  async function hearCancels(): Promise<void> {
    while (!closing.aborted) {
      await clock.sleep(250, closing).catch(() => {});
      if (closing.aborted || own.isEmpty()) continue;
      try {
        for (const runId of await runStore.cancelRequests(instanceId)) own.cancel(runId);
      } catch (thrown) {
        log.debug({ err: thrown }, 'wishes to cancel cannot be heard at the moment');
      }
    }
  }

  // What nobody asks for any more.
  async function tidy(): Promise<void> {
    while (!closing.aborted) {
      try {
        for (const key of await store.expiredSessions(agentId, limits.keptDays)) {
          const session = await store.session(agentId, { key });
          if (session) await forget(session);
        }
      } catch (thrown) {
        log.warn({ err: thrown }, 'old sessions could not be removed');
      }
      await clock.sleep(60 * 60 * 1000, closing).catch(() => {});
    }
  }

  return {
    sweep,
    suspect() {
      hasOrphans = true;
    },
    expireIn,
    keep: () => [keepLeases(), tidy(), ...(hasReplicas ? [hearCancels()] : [])],
  };
}

function interruption(
  run: RunRecord,
  all: ReturnType<typeof readEvent>[],
  open: Parameters<typeof foldEvents>[1],
): Settlement {
  const usage = { ...noUsage };
  for (const event of all) {
    if (event.type !== 'run.step.ended') continue;
    usage.inputTokens += event.usage.inputTokens;
    usage.outputTokens += event.usage.outputTokens;
  }
  const error = { code: 'run_interrupted', message: 'The agent ended while this run was going on.' };
  const end = {
    outcome: 'interrupted',
    usage,
    finishReason: null,
    error,
    hasCheckpoints: true,
    hasTakenSteers: true,
  } as const;
  const { messageId } = run;
  if (messageId === null) return { ...end, events: [] };
  const metadata = { runId: run.runId, status: end.outcome, model: run.model, finishReason: null, usage };
  // After a steer the run writes its second message, and what came before has its own.
  const begun = all.findLastIndex(
    (event) => event.type === 'message.created' && event.messageId === messageId,
  );
  const message: UiMessage = {
    id: messageId,
    role: 'assistant',
    parts: foldEvents(all.slice(Math.max(0, begun)), open),
    metadata,
  };
  return { ...end, events: [{ type: 'message.completed', messageId, message }] };
}
