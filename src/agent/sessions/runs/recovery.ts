// Recovers abandoned work: settles the runs of processes that died, expires inputs
// that have waited too long, starts idle queues, and removes old sessions.
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { pause } from '../../../kernel/async.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { readEvent, type SessionEvent, type StoredEvent } from '../event-log/events.ts';
import type { EventLog } from '../event-log/log.ts';
import type { SessionRecord, SessionStore } from '../event-log/session-store.ts';
import { readCheckpoints, readRunEvents } from '../event-log/store.ts';
import { foldEvents, type OpenText } from '../model-loop/message.ts';
import { addUsage, noUsage } from '../model-loop/usage.ts';
import type { StartedRun } from './submission.ts';
import type { Dispatcher } from './dispatcher.ts';
import { isUnavailable } from './problems.ts';
import {
  releasingClaims,
  removeFromQueue,
  settleLocked,
  type Settlement,
  type SettlementRules,
} from './settlement.ts';
import { isAbandoned, type RunRecord, type RunStore } from './store.ts';

export interface RecoveryOptions {
  eventLog: EventLog;
  store: SessionStore;
  runStore: RunStore;
  rules: SettlementRules;
  limits: { leaseMs: number; keptDays: number };
  /**
   * Whether other live processes may have runs of this agent. If not, every run that is open when the agent
   * starts is an orphan.
   */
  hasReplicas: boolean;
  localRuns: {
    /** Whether this process executes the run, or an open transaction gives it to this process. */
    has(runId: string): boolean;
    isEmpty(): boolean;
    start(started: StartedRun): void;
    cancel(runId: string): void;
  };
  dispatcher: Pick<Dispatcher, 'startWaiting'>;
  removeSession(session: SessionRecord): Promise<void>;
  /** Folds the events of sessions at rest. */
  foldSessions(signal: AbortSignal): Promise<void>;
  /** Removes workspaces whose sessions are gone. */
  sweepWorkspaces(): Promise<void>;
  /** Aborted to end all loops. */
  closing: AbortSignal;
  clock: Clock;
  log: Log;
}

export interface RunRecovery {
  /** Settles orphans, expires inputs and starts idle queues, once. */
  sweep(): Promise<void>;
  /** Makes the next round sweep again, because this process may have left an orphan itself. */
  requestSweep(): void;
  /** Announces that an input expires after `ms`. */
  expireIn(ms: number): void;
  /** Starts the background loops; their promises resolve after `closing`. */
  startLoops(): Promise<void>[];
}

const cancelPollMs = 250;
const cleanupIntervalMs = 60 * 60 * 1000;

export function createRunRecovery(options: RecoveryOptions): RunRecovery {
  const { runStore, rules, limits, hasReplicas, localRuns, closing, clock, log } = options;
  const { instanceId } = rules.holder;
  const expiry = createInputExpiry(options);
  let needsSweep = false;

  async function sweep(): Promise<void> {
    needsSweep = false;
    const areAllSettled = await settleOrphans(options);
    await expiry.expireInputs();
    if (rules.mayStartNext()) await options.dispatcher.startWaiting();
    if (!areAllSettled) needsSweep = true;
  }

  async function renewLeasesAndSweep(): Promise<void> {
    try {
      if (hasReplicas && !localRuns.isEmpty()) await runStore.renewLeases(instanceId, limits.leaseMs);
      if (hasReplicas || needsSweep) await sweep();
    } catch (error) {
      needsSweep = true;
      log.warn(
        { err: error },
        'leases could not be renewed, or abandoned runs could not be settled; retrying',
      );
    }
  }

  async function repeat(work: () => Promise<void>, intervalMs: number): Promise<void> {
    while (!closing.aborted) {
      await pause(intervalMs, { clock, signal: closing });
      if (!closing.aborted) await work();
    }
  }

  return {
    sweep,
    requestSweep() {
      needsSweep = true;
    },
    expireIn: expiry.expireIn,
    startLoops: () => [
      repeat(renewLeasesAndSweep, limits.leaseMs / 4),
      cleanUp(options).then(() => repeat(() => cleanUp(options), cleanupIntervalMs)),
      ...(hasReplicas ? [repeat(() => pollCancelRequests(options), cancelPollMs)] : []),
    ],
  };
}

async function pollCancelRequests({ runStore, rules, localRuns, log }: RecoveryOptions): Promise<void> {
  if (localRuns.isEmpty()) return;
  try {
    for (const runId of await runStore.cancelRequests(rules.holder.instanceId)) localRuns.cancel(runId);
  } catch (error) {
    log.debug({ err: error }, 'cancel requests cannot be read at the moment');
  }
}

async function cleanUp(options: RecoveryOptions): Promise<void> {
  // A step that fails is repeated in the next round.
  const attempt = (work: Promise<void>, failure: string) =>
    work.catch((error: unknown) => options.log.warn({ err: error }, failure));
  await attempt(removeExpiredSessions(options), 'old sessions could not be removed');
  await attempt(options.foldSessions(options.closing), 'the events of old sessions could not be folded');
  await attempt(options.sweepWorkspaces(), 'old workspaces could not be removed');
}

async function removeExpiredSessions({
  store,
  rules: { agentId },
  limits,
  removeSession,
}: RecoveryOptions): Promise<void> {
  for (const key of await store.expiredSessions(agentId, limits.keptDays)) {
    const session = await store.session(agentId, { key });
    if (session) await removeSession(session);
  }
}

/** Returns whether it settled all of them: an orphan that cannot be settled does not delay the others. */
async function settleOrphans(options: RecoveryOptions): Promise<boolean> {
  const { runStore, rules, hasReplicas, localRuns, log } = options;
  const { agentId, holder } = rules;
  const query = { agentId, instanceId: holder.instanceId, trustLeases: hasReplicas };
  let areAllSettled = true;
  for (const run of await runStore.abandonedRuns(query)) {
    // Check after the query: a run is claimed here before it is written, so a run that the query sees and
    // that is not claimed was left by another process, or by this one after a failed write (`requestSweep`).
    if (localRuns.has(run.runId)) continue;
    try {
      await settleOrphan(options, run);
    } catch (error) {
      if (isUnavailable(error)) throw error;
      areAllSettled = false;
      log.warn({ runId: run.runId, err: error }, 'an abandoned run could not be settled; retrying');
    }
  }
  return areAllSettled;
}

async function settleOrphan(
  { eventLog, rules, hasReplicas, localRuns, log }: RecoveryOptions,
  run: RunRecord,
): Promise<void> {
  const { instanceId } = rules.holder;
  const settlement = await releasingClaims(rules, (ownRules) =>
    eventLog.transact((unit) =>
      settleLocked(
        unit,
        run,
        async () => {
          if (!(await isAbandoned(unit, run.runId, { instanceId, trustLeases: hasReplicas }))) return null;
          const events = await readRunEvents(unit.tx, run);
          return buildInterruption(run, events, await readCheckpoints(unit.tx, run.runId));
        },
        ownRules,
      ),
    ),
  );
  if (settlement === null) return;
  log.warn({ runId: run.runId }, 'settled a run that its process had abandoned');
  if (settlement.next) localRuns.start(settlement.next);
}

/** One timer for the input that expires first. */
function createInputExpiry({ eventLog, runStore, rules, closing, clock, log }: RecoveryOptions): {
  expireInputs(): Promise<void>;
  expireIn(ms: number): void;
} {
  const { agentId } = rules;
  let nextExpiryMs = Number.POSITIVE_INFINITY;

  async function expireInputs(): Promise<void> {
    for (const [sessionKey, runIds] of await runStore.expiredInputs(agentId))
      await eventLog.transact((unit) => removeFromQueue(unit, agentId, sessionKey, runIds, 'expired'));
    const nextMs = await runStore.nextExpiryMs(agentId);
    if (nextMs !== null) expireIn(nextMs);
  }

  async function expireDue(dueMs: number): Promise<void> {
    // A later call with an earlier time has replaced this timer.
    if (nextExpiryMs !== dueMs) return;
    nextExpiryMs = Number.POSITIVE_INFINITY;
    try {
      await expireInputs();
    } catch (error) {
      log.warn({ err: error }, 'inputs that have waited too long could not be removed');
      expireIn(1_000);
    }
  }

  function expireIn(ms: number): void {
    const dueMs = clock.monotonicMs() + Math.max(0, ms);
    if (dueMs >= nextExpiryMs) return;
    nextExpiryMs = dueMs;
    clock.sleep(Math.max(1, ms), closing).then(
      () => expireDue(dueMs),
      () => {},
    );
  }

  return { expireInputs, expireIn };
}

/** Builds the settlement of an orphan, with as much of its message as the log has. */
function buildInterruption(
  run: RunRecord,
  storedEvents: readonly StoredEvent[],
  openTexts: OpenText[],
): Settlement {
  const { runId, messageId, model } = run;
  const events = storedEvents.map(readEvent);
  const usage = usageOf(events);
  const settlement: Settlement = {
    outcome: 'interrupted',
    usage,
    finishReason: null,
    error: { code: 'run_interrupted', message: 'The agent stopped while this run was active.' },
    events: [],
    // Only the dead process knew these two. A needless `true` costs a query that finds nothing.
    hasCheckpoints: true,
    hasTakenSteers: true,
  };
  if (messageId === null) return settlement;
  // Each steer starts another message; the earlier messages of the run are completed already.
  const startIndex = events.findLastIndex(
    (event) => event.type === 'message.created' && event.messageId === messageId,
  );
  const message: UiMessage = {
    id: messageId,
    role: 'assistant',
    parts: foldEvents(storedEvents.slice(Math.max(0, startIndex)), openTexts),
    metadata: { runId, status: 'interrupted', model, finishReason: null, usage },
  };
  return { ...settlement, events: [{ type: 'message.completed', messageId, message }] };
}

function usageOf(events: readonly SessionEvent[]): Settlement['usage'] {
  const usage = { ...noUsage };
  for (const event of events) if (event.type === 'run.step.ended') addUsage(usage, event.usage);
  return usage;
}
