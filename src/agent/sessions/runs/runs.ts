// Runs from their acceptance to their one outcome. The rule it keeps: what was accepted is settled, by the process that
// runs it or, when that one is gone, by the next that looks; it is settled once, and what waits behind it goes on.
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { silentTraces } from '../../../kernel/telemetry/traces.ts';
import { createBatcher } from '../event-log/batches.ts';
import type { SessionRecord } from '../event-log/session-store.ts';
import { runLost } from '../model-loop/run-writer.ts';
import {
  admitAll,
  admitKnown,
  type Admission,
  type StartedRun,
  type Submission,
  type Verdict,
} from './admission.ts';
import { nameOf, type Heads } from '../event-log/session-cache.ts';
import { type CompletedRun, createRunner, type Going, type RunNeeds } from './runner.ts';
import {
  settle,
  settleKnown,
  removeFromQueue,
  type RunKey,
  type Settled,
  type Settlement,
  type SettlementRules,
} from './settlement.ts';
import type { RunRecord } from './store.ts';
import { createUpkeep } from './recovery.ts';
import { watch } from '../event-log/replica-poll.ts';

export interface RunsNeeds extends Omit<RunNeeds, 'settle'> {
  heads: Heads;
  defaultModel: string;
  limits: RunLimits;
  /** Called for a session that nobody needs any more. */
  forget(session: SessionRecord): Promise<void>;
}

export interface RunLimits {
  maxRuns: number;
  maxSteps: number;
  maxWaiting: number;
  toolTimeoutMs: number;
  modelRetries: number;
  leaseMs: number;
  keptDays: number;
}

export interface Runs {
  /** Resolves once the input is durable; throws a Problem when it was not accepted. */
  submit(submission: Submission): Promise<Admission & { settled: Promise<CompletedRun | Problem> | null }>;
  /** Waits for a run's end, whichever process has it: the run as it ended, unless the time is over first or the run is gone. */
  wait(
    sessionKey: string,
    runId: string,
    forMs: number,
    signal: AbortSignal,
  ): Promise<RunRecord | 'gone' | 'waiting'>;
  /** Ends what runs or waits; the ids of those that this call ended, once that is durable. */
  cancel(session: SessionRecord, what: { runId?: string; queue?: boolean }): Promise<string[]>;
  /** Takes one input out of the queue; empty when it has begun. */
  cancelWaiting(session: SessionRecord, runId: string): Promise<string[]>;
  /** Settles what a process that is gone has left, and goes on looking while others may leave more. Before any start. */
  recover(): Promise<void>;
  isClosing(): boolean;
  /** Aborted once this process has no runs any more and is about to end. */
  readonly closed: AbortSignal;
  /** Accepts nothing more, waits for what runs, ends it after `drainMs`, and settles it as interrupted. */
  close(drainMs: number): Promise<void>;
}

interface Running extends Going {
  settled: Promise<CompletedRun | Problem>;
}

// An own settlement that cannot be written is tried again for as long; then the sweep has it.
const settleRetryMs = 30_000;
// Inputs that are accepted in one transaction.
const largestAdmission = 64;
const longestStandingBackMs = 50;
const mostRequests = 10_000;

export function createRuns(needs: RunsNeeds): Runs {
  const {
    store,
    runStore,
    committer,
    heads,
    bus,
    agentId,
    limits,
    hasReplicas,
    clock,
    log,
    traces = silentTraces,
  } = needs;
  const instanceId = id('ins');
  const running = new Map<string, Running>();
  /** Runs that a transaction under way gives to this process. */
  const claimed = new Set<string>();
  /** The spans of the requests that runs were asked for by. Kept here alone: a run that another process begins has no link to them. */
  const requests = new Map<string, string>();
  const closing = new AbortController();
  const closed = new AbortController();
  /** Inputs that are being accepted, and what happens once none is. */
  let accepting = 0;
  let accepted = Promise.withResolvers<void>();
  let isClosing = false;
  let keepers: Promise<void>[] = [];

  const rules: SettlementRules = {
    agentId,
    holder: { instanceId, leaseMs: limits.leaseMs },
    defaultModel: needs.defaultModel,
    mayContinue: () => !isClosing,
    claim: (runId) => claimed.add(runId),
    release: (runId) => claimed.delete(runId),
  };

  const drive = createRunner({
    ...needs,
    settle: (run, settlement, runLog) => patiently(() => settleRun(run, settlement), runLog),
  });
  const upkeep = createUpkeep({
    ...needs,
    rules,
    own: {
      has: (runId) => running.has(runId) || claimed.has(runId),
      isEmpty: () => running.size === 0,
      isFull: () => running.size >= limits.maxRuns,
      begin: (started) => void begin(started),
      cancel: (runId) => running.get(runId)?.abort.abort(cancelled()),
    },
    closing: closing.signal,
  });

  const admissionRules = {
    ...rules,
    maxWaiting: limits.maxWaiting,
    mayStart: () => running.size + claimed.size < limits.maxRuns,
  };
  const admission = createBatcher(admit, {
    largest: largestAdmission,
    isAlone: ({ delivery }) => delivery === 'interrupt',
  });

  async function admit(submissions: readonly Submission[]): Promise<Verdict[]> {
    const sessions = await Promise.all(
      [...new Map(submissions.map(({ session }) => [nameOf(session), session])).values()].map(sessionOf),
    );
    const found = sessions.filter((session) => session !== undefined);
    const verdicts = await committer.write((unit) => admitKnown(unit, submissions, found, admissionRules));
    const left = submissions.filter((_, index) => verdicts[index] === 'again');
    if (left.length === 0) return verdicts;
    for (const { runId } of left) claimed.delete(runId);
    const locked = await committer.commit((unit) => admitAll(unit, left, admissionRules));
    return verdicts.map((verdict) => (verdict === 'again' ? (locked.shift() as Verdict) : verdict));
  }

  async function sessionOf(named: Submission['session']): Promise<SessionRecord | undefined> {
    const known = heads.get(named);
    // One that nobody could have made yet.
    if (known || 'key' in named) return known;
    const session = await store.session(agentId, named);
    if (session) heads.keep(session);
    return session;
  }

  function begin(started: StartedRun): Promise<CompletedRun | Problem> {
    const abort = new AbortController();
    const entry: Running = {
      abort,
      settled: Promise.resolve(runLost()),
      hasSteer: hasReplicas,
      hasTakenSteers: false,
      request: requests.get(started.runId),
    };
    requests.delete(started.runId);
    running.set(started.runId, entry);
    claimed.delete(started.runId);
    entry.settled = follow(started, entry).finally(() => running.delete(started.runId));
    return entry.settled;
  }

  async function follow(started: StartedRun, entry: Running): Promise<CompletedRun | Problem> {
    await acceptingFirst();
    const { end, next } = await drive(started, entry);
    if (next) void begin(next);
    return end;
  }

  // Whoever waits to hear that an input is accepted waits for less than a run does, so runs stand back, for a moment at most.
  async function acceptingFirst(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    if (accepting === 0) return;
    await inTime(accepted.promise, longestStandingBackMs, closing.signal);
  }

  function noteRequest(runId: string, traceparent: string): void {
    requests.set(runId, traceparent);
    // One that was taken out of its queue is never asked for.
    if (requests.size > mostRequests) requests.delete(requests.keys().next().value as string);
  }

  async function settleRun(run: RunKey, settlement: Settlement): Promise<Settled | null> {
    const known = heads.get({ key: run.sessionKey });
    const settled =
      known && (await committer.write((unit) => settleKnown(unit, known, run, settlement, rules)));
    return settled ?? committer.commit((unit) => settle(unit, run, settlement, rules));
  }

  // An answer follows the settlement, so a database that is away for a moment is waited for.
  async function patiently<T>(write: () => Promise<T>, runLog: Log): Promise<T | Problem> {
    const untilMs = clock.monotonicMs() + settleRetryMs;
    for (;;) {
      try {
        return await write();
      } catch (thrown) {
        const problem = asProblem(thrown);
        const isPassing =
          problem.kind === 'unavailable' && clock.monotonicMs() < untilMs && !closing.signal.aborted;
        if (!isPassing) {
          upkeep.suspect();
          runLog.error(
            { err: problem.cause ?? problem },
            'the end of a run could not be written; it will be settled as interrupted',
          );
          return problem;
        }
        await clock.sleep(1_000, closing.signal).catch(() => {});
      }
    }
  }

  async function wait(
    sessionKey: string,
    runId: string,
    forMs: number,
    signal: AbortSignal,
  ): Promise<RunRecord | 'gone' | 'waiting'> {
    const untilMs = clock.monotonicMs() + forMs;
    const own = running.get(runId);
    if (own) await inTime(own.settled, forMs, signal);
    for (;;) {
      const news = Promise.withResolvers<void>();
      const leave = bus.follow(sessionKey, {
        events: (events) => {
          if (events.some((event) => event.type === 'run.settled' && event.runId === runId)) news.resolve();
        },
        delta: () => {},
        moved: () => news.resolve(),
        gone: () => news.resolve(),
      });
      try {
        const run = await runStore.run(sessionKey, runId);
        if (!run || run.settledAt !== null) return run ?? 'gone';
        const restMs = untilMs - clock.monotonicMs();
        if (restMs <= 0 || signal.aborted) return 'waiting';
        await inTime(news.promise, restMs, signal);
      } finally {
        leave();
      }
    }
  }

  /** Whether it happened before the time was over or the signal said so. */
  async function inTime(happening: Promise<unknown>, forMs: number, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const late = clock.sleep(forMs, AbortSignal.any([signal, over.signal])).then(
      () => false,
      () => false,
    );
    const isInTime = await Promise.race([
      happening.then(
        () => true,
        () => true,
      ),
      late,
    ]);
    over.abort();
    return isInTime;
  }

  async function cancelRun(session: SessionRecord, runId: string): Promise<string[]> {
    const before = await runStore.run(session.key, runId);
    if (!before)
      throw new Problem('not_found', 'run_not_found', 'There is no run of this id in the session.', {
        param: 'runId',
      });
    if (before.settledAt !== null) return [];
    // What a run has taken up ends with it.
    if (before.steeredInto !== null) {
      const ended = await cancelRun(session, before.steeredInto);
      return ended.length === 0 ? [] : [runId, ...ended];
    }
    const own = running.get(runId);
    if (own) own.abort.abort(cancelled());
    else await runStore.requestCancel(runId);
    const after = await wait(session.key, runId, 10_000, closing.signal);
    return typeof after === 'object' && after.status === 'cancelled' ? [runId] : [];
  }

  return {
    async submit(submission) {
      if (isClosing) throw draining();
      let admitted: Admission | 'again' = 'again';
      accepting += 1;
      try {
        for (let attempt = 0; admitted === 'again'; attempt += 1) {
          if (attempt === 10)
            throw new Problem('conflict', 'conflict', 'The session is being made by many at once.', {
              headers: { 'retry-after': '1' },
            });
          const verdict = await admission(submission);
          if (verdict instanceof Problem) throw verdict;
          if (verdict === 'again') claimed.delete(submission.runId);
          admitted = verdict;
        }
      } catch (error) {
        claimed.delete(submission.runId);
        // It may have been accepted all the same, when only the word of it was lost.
        if (!(error instanceof Problem) || error.kind === 'unavailable') upkeep.suspect();
        throw error;
      } finally {
        accepting -= 1;
        if (accepting === 0) {
          accepted.resolve();
          accepted = Promise.withResolvers();
        }
      }
      if (admitted.started === null) claimed.delete(submission.runId);
      const request = traces.traceparent();
      if (request !== undefined && !admitted.isRepeated) noteRequest(submission.runId, request);
      if (submission.expiresInMs !== null && admitted.started === null)
        upkeep.expireIn(submission.expiresInMs);
      if (admitted.steers !== null) {
        const entry = running.get(admitted.steers);
        if (entry) entry.hasSteer = true;
      }
      const settled = admitted.started ? begin(admitted.started) : null;
      if (admitted.interrupts !== null) {
        const own = running.get(admitted.interrupts);
        if (own) own.abort.abort(cancelled());
        else await runStore.requestCancel(admitted.interrupts);
      }
      return { ...admitted, settled };
    },
    wait,
    async cancel(session, { runId, queue = false }) {
      const fromQueue = queue ? 'all' : runId === undefined ? [] : [runId];
      const waiting =
        fromQueue.length === 0
          ? []
          : await committer.commit((unit) =>
              removeFromQueue(unit, agentId, session.key, fromQueue, 'cancelled'),
            );
      const active = runId ?? (await store.session(agentId, { key: session.key }))?.activeRunId ?? null;
      if (active === null || waiting.includes(active)) return waiting;
      return [...waiting, ...(await cancelRun(session, active))];
    },
    cancelWaiting: (session, runId) =>
      committer.commit((unit) => removeFromQueue(unit, agentId, session.key, [runId], 'cancelled')),
    async recover() {
      await upkeep.sweep();
      keepers = [
        ...upkeep.keep(),
        ...(hasReplicas
          ? [
              watch(
                { bus, events: needs.events, isOwn: (runId) => running.has(runId), clock, log },
                closing.signal,
              ),
            ]
          : []),
      ];
    },
    isClosing: () => isClosing,
    closed: closed.signal,
    async close(drainMs) {
      isClosing = true;
      const ended = new AbortController();
      const all = Promise.allSettled([...running.values()].map((run) => run.settled));
      await Promise.race([all, clock.sleep(drainMs, ended.signal).catch(() => {})]);
      ended.abort();
      for (const run of running.values()) run.abort.abort(interrupted());
      await Promise.allSettled([...running.values()].map((run) => run.settled));
      closed.abort();
      closing.abort();
      await Promise.all(keepers);
    },
  };
}

function interrupted(): Problem {
  return new Problem('unavailable', 'run_interrupted', 'The agent is going down and has ended the run.', {
    headers: { 'retry-after': '1' },
  });
}

function cancelled(): Problem {
  return new Problem('conflict', 'run_cancelled', 'The run was cancelled.');
}

function draining(): Problem {
  return new Problem('unavailable', 'draining', 'The agent is going down and takes no more input.', {
    headers: { 'retry-after': '1' },
  });
}
