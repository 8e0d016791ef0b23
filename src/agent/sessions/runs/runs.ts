// Runs from their acceptance to their outcome. Every accepted run is settled once, by the process
// that executes it or, after a crash, by the next sweep; then the next run of its session starts.
import { createLruCache, type LruCache } from '../../../kernel/cache.ts';
import { createBatcher, retry, settlesWithin } from '../../../kernel/async.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { isRolledBack } from '../event-log/commit-path.ts';
import { pollReplicas } from '../event-log/replica-poll.ts';
import type { SessionRecord } from '../event-log/session-store.ts';
import { runLost } from '../model-loop/run-writer.ts';
import type { CompletedRun, RunnerOptions } from './active-run.ts';
import { admitInputs } from './admission.ts';
import { databaseWaitMs } from './database-wait.ts';
import { createDispatcher, type Dispatcher } from './dispatcher.ts';
import { createLocalRuns, type LocalRun, type LocalRuns } from './local-runs.ts';
import { runNotFound } from './problems.ts';
import { createRunRecovery, type RunRecovery } from './recovery.ts';
import { createRunner, type ExecuteRun } from './runner.ts';
import {
  removeFromQueue,
  settleRun,
  type RunKey,
  type Settlement,
  type SettlementRules,
  type SettleResult,
} from './settlement.ts';
import type { RunRecord } from './store.ts';
import type { Admission, StartedRun, Submission } from './submission.ts';
import { waitForRun } from './wait.ts';

export interface RunsOptions extends Omit<RunnerOptions, 'settle'> {
  defaultModel: string;
  limits: RunLimits;
  /** Called for sessions whose retention is over. */
  removeSession(session: SessionRecord): Promise<void>;
  /** Folds the events of sessions at rest, until the signal is aborted. */
  foldSessions(signal: AbortSignal): Promise<void>;
  /** Removes workspaces whose sessions are gone. */
  sweepWorkspaces(): Promise<void>;
}

export interface RunLimits {
  /** Runs that execute at one time in this process. */
  maxRuns: number;
  maxSteps: number;
  /** Waiting inputs of one session. */
  maxWaiting: number;
  /** Inputs of all sessions that wait for a free place while `maxRuns` execute. */
  maxQueuedRuns: number;
  toolTimeoutMs: number;
  modelRetries: number;
  /** How long a run may wait for models at their limit. */
  modelWaitMs: number;
  leaseMs: number;
  /** Retention of `execute` sessions. */
  keptDays: number;
}

export interface Runs {
  /**
   * Resolves once the input is durable; throws a Problem when it is refused. `settled` is the outcome of the
   * run when it started at once; null for an input that waits.
   */
  submit(submission: Submission): Promise<Admission & { settled: Promise<CompletedRun | Problem> | null }>;
  /**
   * Waits for a run of any process. Returns the settled run, `waiting` when the timeout comes first, or
   * `gone` when there is no such run.
   */
  wait(
    run: RunKey,
    options: { timeoutMs: number; signal: AbortSignal },
  ): Promise<RunRecord | 'gone' | 'waiting'>;
  /**
   * Cancels the run `runId` or, without it, the active run; with `queue` also all waiting inputs. When no run
   * is active, cancels the first waiting input. Returns the ids of the runs that it ended, once that is
   * durable.
   */
  cancel(session: SessionRecord, target: { runId?: string; queue?: boolean }): Promise<string[]>;
  /** Removes one input from the queue. Returns the ids of the removed runs: none when the run has started. */
  cancelWaiting(session: SessionRecord, runId: string): Promise<string[]>;
  /**
   * Settles the runs of dead processes and starts the background loops. Called once, before any submission.
   */
  recover(): Promise<void>;
  /** Aborted after this process has settled its last run. */
  readonly closed: AbortSignal;
  /** Refuses new inputs, waits for runs, aborts them after `drainMs` and settles them as interrupted. */
  close(drainMs: number): Promise<void>;
}

// A failed settlement is retried for this long; then the sweep settles the run as interrupted.
const settleRetryMs = databaseWaitMs;
const settleRetryDelayMs = 1_000;
// The maximum number of inputs that are accepted in one commit.
const maxBatchInputs = 64;
const cancelTimeoutMs = 10_000;

/** State shared by the functions of this file. */
interface Context {
  options: RunsOptions;
  rules: SettlementRules;
  localRuns: LocalRuns;
  /**
   * The `traceparent` of the request of each run that has not started. The span of a run that another process
   * starts has no link to its request.
   */
  traceparents: LruCache<string, string>;
  gate: AdmissionGate;
  /** `draining`: new inputs are refused, and active runs may still finish. */
  phase: () => 'open' | 'draining';
  /** Aborted to end the background loops. */
  closing: AbortSignal;
  execute: ExecuteRun;
  dispatcher: Dispatcher;
  recovery: RunRecovery;
}

export function createRuns(options: RunsOptions): Runs {
  const { eventLog, agentId, limits, clock } = options;
  const loopsController = new AbortController();
  const closedController = new AbortController();
  let isDraining = false;
  const context = createContext(options, {
    phase: () => (isDraining ? 'draining' : 'open'),
    closing: loopsController.signal,
  });
  const { localRuns, recovery, rules, dispatcher } = context;
  const { maxWaiting, maxQueuedRuns } = limits;
  const mayStart = () => localRuns.freePlaces() > 0 && !dispatcher.hasWaiting();
  const admissionRules = { ...rules, maxWaiting, maxQueuedRuns, mayStart };
  const admit = createBatcher(
    (submissions: readonly Submission[]) => admitInputs(eventLog, submissions, admissionRules),
    {
      maxItems: maxBatchInputs,
      isAlone: ({ delivery }) => delivery === 'interrupt',
      hadNoEffect: isRolledBack,
    },
  );
  let loops: Promise<void>[] = [];

  return {
    submit: (submission) => submit(context, admit, submission),
    wait: (run, waitOptions) => wait(context, run, waitOptions),
    cancel: (session, target) => cancel(context, session, target),
    cancelWaiting: (session, runId) =>
      eventLog.transact((unit) => removeFromQueue(unit, agentId, session.key, [runId], 'cancelled')),
    async recover() {
      await recovery.sweep();
      loops = [...recovery.startLoops(), ...startReplicaPoll(context)];
    },
    closed: closedController.signal,
    async close(drainMs) {
      isDraining = true;
      await settlesWithin(localRuns.allSettled(), { ms: drainMs, clock });
      localRuns.abortAll(interruptedProblem());
      await localRuns.allSettled();
      closedController.abort();
      loopsController.abort();
      await Promise.all(loops);
    },
  };
}

function createContext(
  options: RunsOptions,
  { phase, closing }: Pick<Context, 'phase' | 'closing'>,
): Context {
  const { limits, clock } = options;
  const localRuns = createLocalRuns(limits.maxRuns);
  const rules = createRules(options, { localRuns, phase, hasWaiting: () => dispatcher.hasWaiting() });
  const startRun = (started: StartedRun) => void start(context, started);
  const execute = createRunner({
    ...options,
    settle: (run, settlement, runLog) => settleWithRetries(context, { run, settlement, runLog }),
  });
  const dispatcher = createDispatcher({
    ...options,
    rules,
    localRuns,
    start: startRun,
    retryLater: () => recovery.requestSweep(),
  });
  const recovery = createRunRecovery({
    ...options,
    rules,
    dispatcher,
    localRuns: {
      ...localRuns,
      start: startRun,
      cancel: (runId) => localRuns.get(runId)?.abort.abort(cancelledProblem()),
    },
    closing,
  });
  const context: Context = {
    options,
    rules,
    localRuns,
    traceparents: createLruCache({ capacity: maxTraceparents }),
    gate: createAdmissionGate({ clock, closing }),
    phase,
    closing,
    execute,
    dispatcher,
    recovery,
  };
  return context;
}

function createRules(
  { agentId, limits: { leaseMs }, defaultModel }: RunsOptions,
  {
    localRuns,
    phase,
    hasWaiting,
  }: Pick<Context, 'localRuns' | 'phase'> & Pick<SettlementRules, 'hasWaiting'>,
): SettlementRules {
  return {
    agentId,
    holder: { instanceId: id('ins'), leaseMs },
    defaultModel,
    mayStartNext: () => phase() === 'open',
    hasWaiting,
    claim: localRuns.claim,
    release: localRuns.release,
  };
}

/** Executes a run, and then the next runs of its session. */
function start(context: Context, started: StartedRun): Promise<CompletedRun | Problem> {
  const { localRuns, traceparents, options, dispatcher } = context;
  const { runId } = started;
  const run: LocalRun = {
    abort: new AbortController(),
    // Replaced below: the execution needs this handle first.
    settlement: Promise.resolve(runLost()),
    hasSteer: options.hasReplicas,
    hasTakenSteers: false,
    traceparent: traceparents.get(runId),
  };
  traceparents.delete(runId);
  localRuns.add(runId, run);
  run.settlement = executeAndContinue(context, started, run).finally(() => {
    localRuns.remove(runId);
    dispatcher.announceFreePlace();
  });
  return run.settlement;
}

async function executeAndContinue(
  context: Context,
  started: StartedRun,
  run: LocalRun,
): Promise<CompletedRun | Problem> {
  await context.gate.waitForAdmissions();
  const { end, next } = await context.execute(started, run);
  if (next) void start(context, next);
  return end;
}

// The caller is answered after the settlement, so a short outage of the database is waited out.
async function settleWithRetries(
  { options, rules, closing, recovery, dispatcher }: Context,
  { run, settlement, runLog }: { run: RunKey; settlement: Settlement; runLog: Log },
): Promise<SettleResult | null | Problem> {
  const { eventLog, clock } = options;
  const deadlineMs = clock.monotonicMs() + settleRetryMs;
  try {
    const result = await retry(() => settleRun(eventLog, run, settlement, rules), {
      isRetryable(error) {
        // A commit in doubt may have started the session's next run here; a sweep then settles that run.
        if (!isRolledBack(error)) recovery.requestSweep();
        return asProblem(error).kind === 'unavailable' && clock.monotonicMs() < deadlineMs;
      },
      delayMs: () => settleRetryDelayMs,
      clock,
      signal: closing,
    });
    if (result?.hasYielded) dispatcher.announceInput();
    return result;
  } catch (error) {
    const problem = asProblem(error);
    recovery.requestSweep();
    runLog.error(
      { err: problem.cause ?? problem },
      'the end of a run could not be written; it will be settled as interrupted',
    );
    return problem;
  }
}

const maxAdmissionAttempts = 10;

async function submit(
  context: Context,
  admit: (submission: Submission) => Promise<Admission | Problem | 'stale'>,
  submission: Submission,
): ReturnType<Runs['submit']> {
  const { localRuns, gate, recovery, phase } = context;
  if (phase() === 'draining') throw drainingProblem();
  let admission: Admission;
  gate.enter();
  try {
    admission = await admitWithRetries(context, admit, submission);
  } catch (error) {
    localRuns.release(submission.runId);
    // After a lost connection the input may have been accepted nevertheless. Its run is then an orphan of
    // this process, which a sweep settles.
    if (!(error instanceof Problem) || error.kind === 'unavailable') recovery.requestSweep();
    throw error;
  } finally {
    gate.leave();
  }
  const settlement = applyAdmission(context, submission, admission);
  if (admission.interrupts !== null) await requestCancel(context, admission.interrupts);
  return { ...admission, settled: settlement };
}

async function admitWithRetries(
  { localRuns }: Context,
  admit: (submission: Submission) => Promise<Admission | Problem | 'stale'>,
  submission: Submission,
): Promise<Admission> {
  for (let attempt = 0; attempt < maxAdmissionAttempts; attempt += 1) {
    const verdict = await admit(submission);
    if (verdict instanceof Problem) throw verdict;
    if (verdict !== 'stale') return verdict;
    localRuns.release(submission.runId);
  }
  throw new Problem('conflict', 'conflict', 'Too many requests create this session at once; try again.', {
    headers: { 'retry-after': '1' },
  });
}

/** Starts the run, or notifies the active run or the dispatcher of the input. */
function applyAdmission(
  context: Context,
  { runId, expiresInMs }: Submission,
  { started, steers, isRepeated, receipt }: Admission,
): Promise<CompletedRun | Problem> | null {
  const { localRuns, recovery, dispatcher } = context;
  if (!isRepeated) rememberTraceparent(context, runId);
  if (started === null) {
    localRuns.release(runId);
    if (expiresInMs !== null) recovery.expireIn(expiresInMs);
    if (receipt.waitsFor === 'capacity' && !isRepeated) dispatcher.announceInput();
  }
  const activeRun = steers === null ? undefined : localRuns.get(steers);
  if (activeRun) activeRun.hasSteer = true;
  return started && start(context, started);
}

// The cache is bounded, because a run that is cancelled in the queue never uses its entry.
const maxTraceparents = 10_000;

function rememberTraceparent({ traceparents, options }: Context, runId: string): void {
  const traceparent = options.traces.traceparent();
  if (traceparent === undefined) return;
  traceparents.set(runId, traceparent);
}

async function requestCancel({ localRuns, options }: Context, runId: string): Promise<void> {
  const localRun = localRuns.get(runId);
  if (localRun) localRun.abort.abort(cancelledProblem());
  else await options.runStore.requestCancel(runId);
}

function wait(
  { options: { eventLog, runStore, clock }, localRuns }: Context,
  run: RunKey,
  waitOptions: { timeoutMs: number; signal: AbortSignal },
): Promise<RunRecord | 'gone' | 'waiting'> {
  return waitForRun({ feed: eventLog, runStore, localRuns, clock }, run, waitOptions);
}

async function cancel(
  context: Context,
  session: SessionRecord,
  { runId, queue = false }: { runId?: string; queue?: boolean },
): Promise<string[]> {
  const { eventLog, store, agentId } = context.options;
  const targets = queue ? 'all' : await cancelTargets(context, session, runId);
  const removedIds =
    targets.length === 0
      ? []
      : await eventLog.transact((unit) => removeFromQueue(unit, agentId, session.key, targets, 'cancelled'));
  const activeRunId = runId ?? (await store.session(agentId, { key: session.key }))?.activeRunId ?? null;
  if (activeRunId === null || removedIds.includes(activeRunId)) return removedIds;
  return [...removedIds, ...(await cancelRun(context, session, activeRunId))];
}

/** The waiting runs to cancel: the named run; without a name, the first one when no run is active. */
async function cancelTargets(
  { options: { store, runStore, agentId } }: Context,
  { key }: SessionRecord,
  runId: string | undefined,
): Promise<string[]> {
  if (runId !== undefined) return [runId];
  const session = await store.session(agentId, { key });
  if (session === undefined || session.activeRunId !== null || session.queueLength === 0) return [];
  const [firstRun] = await runStore.queue(key);
  return firstRun === undefined ? [] : [firstRun.runId];
}

async function cancelRun(context: Context, session: SessionRecord, runId: string): Promise<string[]> {
  const run = await context.options.runStore.run(session.key, runId);
  if (!run) throw runNotFound();
  if (run.settledAt !== null) return [];
  // A steer is part of the run that took it, so that run is cancelled too.
  if (run.steeredInto !== null) {
    const furtherIds = await cancelRun(context, session, run.steeredInto);
    return furtherIds.length === 0 ? [] : [runId, ...furtherIds];
  }
  await requestCancel(context, runId);
  const key = { sessionKey: session.key, runId };
  const settledRun = await wait(context, key, { timeoutMs: cancelTimeoutMs, signal: context.closing });
  return typeof settledRun === 'object' && settledRun.status === 'cancelled' ? [runId] : [];
}

function startReplicaPoll({ options, localRuns, closing }: Context): Promise<void>[] {
  const { hasReplicas, eventLog, events, clock, log } = options;
  if (!hasReplicas) return [];
  return [pollReplicas({ feed: eventLog, events, isLocal: localRuns.isExecuting, clock, log }, closing)];
}

/** Delays runs while inputs are being admitted: admissions are short, and their callers wait. */
interface AdmissionGate {
  enter(): void;
  leave(): void;
  /** Waits for at least one turn of the event loop and at most 50 ms. */
  waitForAdmissions(): Promise<void>;
}

const maxGateMs = 50;

function createAdmissionGate({
  clock,
  closing,
}: {
  clock: RunsOptions['clock'];
  closing: AbortSignal;
}): AdmissionGate {
  let count = 0;
  let idle = Promise.withResolvers<void>();
  return {
    enter() {
      count += 1;
    },
    leave() {
      count -= 1;
      if (count > 0) return;
      idle.resolve();
      idle = Promise.withResolvers();
    },
    async waitForAdmissions() {
      await new Promise((resolve) => setImmediate(resolve));
      if (count > 0) await settlesWithin(idle.promise, { ms: maxGateMs, clock, signal: closing });
    },
  };
}

function interruptedProblem(): Problem {
  return new Problem('unavailable', 'run_interrupted', 'The agent is stopping and has ended the run.', {
    headers: { 'retry-after': '1' },
  });
}

function cancelledProblem(): Problem {
  return new Problem('conflict', 'run_cancelled', 'The run was cancelled.');
}

function drainingProblem(): Problem {
  return new Problem('unavailable', 'draining', 'The agent is stopping and accepts no more input.', {
    headers: { 'retry-after': '1' },
  });
}
