// Runs from their acceptance to their one outcome. The rule it keeps: what was accepted is settled, by the process that
// runs it or, when that one is gone, by the next that looks; it is settled once, and what waits behind it goes on.
import type { RunUsage, UiMessage } from '../../../contract/agent/types.gen.ts';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { silentTraces, type Traces } from '../../../kernel/telemetry/traces.ts';
import type { PluginRegistry } from '../../plugins/index.ts';
import { admitAll, admitKnown, shifted, type Admitted, type StartedRun, type Submission, type Verdict } from './admission.ts';
import type { Approvals } from '../approvals/approvals.ts';
import { compact } from '../turn/compaction.ts';
import { readEvent, type RunOutcome } from '../events.ts';
import { nameOf, type Heads } from './heads.ts';
import { estimateTokens, type Talk } from '../turn/history.ts';
import { systemPrompt, systemSections } from '../turn/instructions.ts';
import { createJournal, lost, type Journal } from '../turn/journal.ts';
import { createBatches } from '../log/batches.ts';
import type { Bus } from '../log/bus.ts';
import type { Committer } from '../log/committer.ts';
import { readCheckpoints, runEvents, type EventStore, type LogEntry } from '../log/store.ts';
import { foldEvents } from '../turn/message.ts';
import { modelProblem } from '../turn/model-problem.ts';
import { settle, settleKnown, takeOut, takeUpQueue, type RunKey, type Settled, type Settlement, type SettlementRules } from './settlement.ts';
import { lockSession, moveMessage, segmentsOf, steerRun, waitingRuns, type RunRecord, type SessionRecord, type SessionStore } from '../store.ts';
import { endSpan, runSpan } from '../turn/spans.ts';
import type { Talks } from '../turn/talks.ts';
import type { FinishReason, ModelMessage, RunTurn, Turn } from '../turn/turn.ts';
import { watch } from './watch.ts';

/** What is loaded late; see `loop.ts`. */
export interface Loop {
  runTurn: RunTurn;
  summarize(needs: { model: LanguageModelV3; messages: ModelMessage[]; signal: AbortSignal }): Promise<{ summary: string; usage: RunUsage }>;
  toModelMessages(talk: Talk): Promise<ModelMessage[]>;
}

export interface RunsNeeds {
  store: SessionStore;
  events: EventStore;
  committer: Committer;
  heads: Heads;
  talks: Talks;
  bus: Bus;
  approvals: Approvals;
  agentId: string;
  name: string;
  defaultModel: string;
  /** The model of that id; throws a Problem when it cannot be had. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /** How many tokens it takes, where that is known. */
  contextTokens(modelId: string): Promise<number | null>;
  loop: Loop;
  registry: PluginRegistry;
  workspace: string;
  limits: RunLimits;
  /** Whether another living process may have runs of this agent; if not, every open run at start is a dead one's. */
  hasReplicas: boolean;
  /** Called for a session that nobody needs any more. */
  forget(session: SessionRecord): Promise<void>;
  clock: Clock;
  log: Log;
  traces?: Traces;
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

export interface CompletedRun {
  messageId: string;
  message: UiMessage;
  text: string;
  usage: Turn['usage'];
  finishReason: FinishReason;
}

export interface Runs {
  /** Resolves once the input is durable; throws a Problem when it was not accepted. */
  submit(submission: Submission): Promise<Admitted & { settled: Promise<CompletedRun | Problem> | null }>;
  /** Waits for a run's end, whichever process has it: the run as it ended, unless the time is over first or the run is gone. */
  wait(sessionKey: string, runId: string, forMs: number, signal: AbortSignal): Promise<RunRecord | 'gone' | 'waiting'>;
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

interface Running {
  abort: AbortController;
  settled: Promise<CompletedRun | Problem>;
  /** Something may be there for the next step. */
  hasSteer: boolean;
  /** Something was, and ends with the run. */
  hasSteered: boolean;
}

// An own settlement that cannot be written is tried again for as long; then the sweep has it.
const settleRetryMs = 30_000;
// Inputs that are accepted in one transaction.
const largestAdmission = 64;
const longestStandingBackMs = 50;
const mostRequests = 10_000;
// Of what the model takes; beyond it the past is summed up before the next step.
const fullShare = 0.8;
const noUsage: RunUsage = { inputTokens: 0, outputTokens: 0 };

export function createRuns(needs: RunsNeeds): Runs {
  const { store, committer, heads, talks, bus, agentId, limits, clock, log, registry, loop, traces = silentTraces } = needs;
  const { hooks } = registry;
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
  let hasOrphans = false;
  let nextExpiryMs = Number.POSITIVE_INFINITY;
  let keepers: Promise<unknown>[] = [];

  const rules: SettlementRules = {
    agentId,
    holder: { instanceId, leaseMs: limits.leaseMs },
    defaultModel: needs.defaultModel,
    mayContinue: () => !isClosing,
    claim: (runId) => claimed.add(runId),
    release: (runId) => claimed.delete(runId),
  };

  const admissionRules = { ...rules, mostWaiting: limits.maxWaiting, mayStart: () => running.size + claimed.size < limits.maxRuns };
  const admission = createBatches(admit, { largest: largestAdmission, isAlone: ({ delivery }) => delivery === 'interrupt' });

  async function admit(submissions: readonly Submission[]): Promise<Verdict[]> {
    const sessions = await Promise.all([...new Map(submissions.map(({ session }) => [nameOf(session), session])).values()].map(sessionOf));
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
    const entry: Running = { abort, settled: Promise.resolve(lost()), hasSteer: needs.hasReplicas, hasSteered: false };
    running.set(started.runId, entry);
    claimed.delete(started.runId);
    entry.settled = acceptingFirst().then(() => driveTraced(started, entry)).finally(() => running.delete(started.runId));
    return entry.settled;
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

  async function driveTraced(started: StartedRun, entry: Running): Promise<CompletedRun | Problem> {
    const { session, runId, model } = started;
    const span = runSpan(traces, { agentId, name: needs.name, sessionId: session.id, runId, model, request: requests.get(runId) });
    requests.delete(runId);
    let end: CompletedRun | Problem | undefined;
    try {
      end = await traces.within(span, () => drive(started, entry));
      return end;
    } finally {
      const done = end instanceof Problem ? undefined : end;
      endSpan(span, { usage: done?.usage, finishReason: done?.finishReason, reason: end instanceof Problem ? end.code : end === undefined ? 'internal_error' : undefined });
    }
  }

  async function drive(started: StartedRun, entry: Running): Promise<CompletedRun | Problem> {
    const { session, runId } = started;
    const runLog = log.child({ runId, sessionId: session.id });
    const { abort } = entry;
    const journal = createJournal({ sessionKey: session.key, runId, committer, bus, clock, failed: (error) => abort.abort(asProblem(error)) });
    let messageId = started.messageId;
    const createdAt = clock.now().toISOString();
    const setMessage = (next: string) => {
      messageId = next;
      journal.setMessage(next);
    };
    if (messageId !== null) journal.setMessage(messageId);
    let turn: Turn;
    try {
      const settings = started.reasoningEffort === null ? {} : { reasoningEffort: started.reasoningEffort };
      const model = await needs.model(started.model, settings);
      turn = started.delivery === 'compact' ? await compactNow(started, model, journal, abort.signal) : await answer(started, { model, journal, entry, messageId: () => messageId as string, setMessage, createdAt, runLog });
    } catch (thrown) {
      const reason: unknown = abort.signal.reason;
      turn = { parts: [], text: '', usage: noUsage, finishReason: null, problem: abort.signal.aborted && reason instanceof Problem ? reason : modelProblem(thrown) };
    }
    try {
      return await finish(started, turn, { journal, messageId, createdAt, hasSteered: entry.hasSteered, runLog });
    } finally {
      journal.dispose();
    }
  }

  interface Writing {
    model: LanguageModelV3;
    journal: Journal;
    entry: Running;
    messageId(): string;
    setMessage(messageId: string): void;
    createdAt: string;
    runLog: Log;
  }

  async function answer(started: StartedRun, writing: Writing): Promise<Turn> {
    const { session, runId } = started;
    const { model, journal, entry, runLog } = writing;
    const { signal } = entry.abort;
    const context = { sessionId: session.id, runId, signal };
    const talk = await talks.read(session, started.seq, started.input);
    const messages = await loop.toModelMessages(talk);
    const text = inputText(talk);
    const given = await hooks.pipeline('prompt.before', { system: systemPrompt(systemSections(needs.name, registry, session)), text }, context);
    await hooks.guard('prompt.before', given, context);
    if (given.text !== text) replaceLast(messages, text, given.text);
    let earlier = messages.length - 1;
    const turn = await loop.runTurn({
      model,
      system: given.system,
      messages,
      registry,
      hooks,
      sessionId: session.id,
      runId,
      workspace: needs.workspace,
      maxSteps: limits.maxSteps,
      toolTimeoutMs: limits.toolTimeoutMs,
      modelRetries: limits.modelRetries,
      signal,
      journal,
      async approve({ tool, toolCallId, input }) {
        const now = await store.session(agentId, { key: session.key });
        return needs.approvals.ask({ sessionKey: session.key, runId, isAttended: now?.attended ?? false, queueLength: now?.queueLength ?? 0, toolCallId, toolName: tool.name, input, signal, journal });
      },
      steer: (parts) => (entry.hasSteer ? takeSteers(started, writing, parts) : Promise.resolve([])),
      async shorten(current, lastInputTokens) {
        if (earlier < 1) return null;
        const window = await needs.contextTokens(started.model);
        if (window === null || Math.max(lastInputTokens, estimateTokens(current) + estimateTokens(given.system)) < window * fullShare) return null;
        const past: Talk = { summary: talk.summary, spoken: talk.spoken.slice(0, -1) };
        const { summary, usage } = await compact({ journal, model, talk: past, toModelMessages: loop.toModelMessages, summarize: loop.summarize, reason: 'full', signal });
        const own = current.slice(earlier);
        earlier = 0;
        return { messages: [...(await loop.toModelMessages({ summary, spoken: [] })), ...own], usage };
      },
      clock,
      log: runLog,
      traces,
    });
    hooks.effect('prompt.after', { text: turn.text, outcome: turn.problem === null ? 'completed' : turn.problem.code }, context);
    return turn;
  }

  /** Gives the model what was said meanwhile: the message so far ends, and a new one begins behind it. */
  async function takeSteers({ session, runId }: StartedRun, { journal, entry, messageId, setMessage, createdAt }: Writing, parts: Turn['parts']): Promise<ModelMessage[]> {
    if (!needs.hasReplicas) entry.hasSteer = false;
    const isSteer = ({ delivery }: RunRecord) => delivery === 'steer';
    if (!(await store.queue(session.key)).some(isSteer)) return [];
    const next = id('msg');
    const current = messageId();
    let steers: RunRecord[] = [];
    await journal.recordMade(async (unit) => {
      const locked = await lockSession(unit, agentId, { key: session.key });
      const waiting = await waitingRuns(unit, session.key);
      steers = locked?.activeRunId === runId ? waiting.filter(isSteer) : [];
      if (!locked || steers.length === 0) return null;
      for (const steer of steers) await steerRun(unit, steer.runId, runId);
      await moveMessage(unit, runId, next);
      const rest = waiting.filter((run) => !isSteer(run));
      const events: LogEntry[] = [
        { type: 'message.completed', messageId: current, message: { id: current, role: 'assistant', parts, metadata: { runId, createdAt, status: 'completed' } } },
        ...steers.map((steer): LogEntry => ({ type: 'queue.removed', runId: steer.runId, queueItemId: steer.queueItemId ?? steer.runId, reason: 'steered' })),
        ...(rest.length === 0 ? [] : [{ ...shifted(rest, rest.length, (index) => index + 1), runId: null }]),
        { type: 'message.created', messageId: next, role: 'assistant', index: locked.messageCount },
      ];
      return { events, change: { queue: -steers.length, messages: 1 } };
    });
    if (steers.length === 0) return [];
    entry.hasSteered = true;
    setMessage(next);
    const said: UiMessage[] = [];
    for (const steer of steers) {
      const [event] = await needs.events.message(segmentsOf(session, Number.MAX_SAFE_INTEGER), steer.inputMessageId ?? '').then((found) => found.filter(({ type }) => type === 'message.completed'));
      if (event) said.push((readEvent(event) as { message: UiMessage }).message);
    }
    return loop.toModelMessages({ summary: null, spoken: said.map((message) => ({ seq: 0, message })) });
  }

  async function compactNow({ session, seq }: StartedRun, model: LanguageModelV3, journal: Journal, signal: AbortSignal): Promise<Turn> {
    const talk = await talks.read(session, seq, null);
    if (talk.spoken.length === 0) throw new Problem('conflict', 'nothing_to_compact', 'Nothing has been said since the last time.');
    const { summary, usage } = await compact({ journal, model, talk, toModelMessages: loop.toModelMessages, summarize: loop.summarize, reason: 'asked', signal });
    return { parts: [], text: summary, usage, finishReason: 'stop', problem: null };
  }

  async function finish(started: StartedRun, turn: Turn, { journal, messageId, createdAt, hasSteered, runLog }: { journal: Journal; messageId: string | null; createdAt: string; hasSteered: boolean; runLog: Log }): Promise<CompletedRun | Problem> {
    const { session, runId } = started;
    const { problem, usage, finishReason, parts, text } = turn;
    const outcome = outcomeOf(problem);
    const metadata = { runId, createdAt, status: outcome, model: started.model, finishReason, usage };
    const message: UiMessage = { id: messageId ?? runId, role: 'assistant', parts, metadata };
    const error = problem && { code: problem.code, message: problem.message };
    const tail = await journal.close();
    const settlement: Settlement = {
      outcome,
      usage,
      finishReason,
      error,
      events: [...tail.events, ...(messageId === null ? [] : [{ type: 'message.completed' as const, messageId, message }])],
      hasCheckpoints: tail.hasCheckpoints,
      hasSteered,
    };
    if (problem?.kind === 'internal') runLog.error({ err: problem.cause ?? problem }, 'a run failed');
    else runLog.info({ outcome, ...usage, ...(error ? { code: error.code, cause: causeOf(problem) } : {}) }, 'a run was settled');
    const written = await patiently(() => settleRun({ runId, sessionKey: session.key }, settlement), runLog);
    if (written instanceof Problem) return written;
    if (written === null) return lost();
    if (written.next) void begin(written.next);
    if (problem) return named(problem, runId);
    return { messageId: message.id, message, text, usage, finishReason: finishReason ?? 'other' };
  }

  async function settleRun(run: RunKey, settlement: Settlement): Promise<Settled | null> {
    const known = heads.get({ key: run.sessionKey });
    const settled = known && (await committer.write((unit) => settleKnown(unit, known, run, settlement, rules)));
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
        const isPassing = problem.kind === 'unavailable' && clock.monotonicMs() < untilMs && !closing.signal.aborted;
        if (!isPassing) {
          hasOrphans = true;
          runLog.error({ err: problem.cause ?? problem }, 'the end of a run could not be written; it will be settled as interrupted');
          return problem;
        }
        await clock.sleep(1_000, closing.signal).catch(() => {});
      }
    }
  }

  async function interrupt(run: RunRecord): Promise<void> {
    const written = await committer.commit((unit) =>
      settle(
        unit,
        run,
        async () => {
          const [events, open] = [await runEvents(unit.tx, run), await readCheckpoints(unit.tx, run.runId)];
          return interruption(run, events.map(readEvent), open);
        },
        rules,
      ),
    );
    if (written === null) return;
    log.warn({ runId: run.runId }, 'settled a run that its process had left behind');
    if (written.next) void begin(written.next);
  }

  async function sweep(): Promise<void> {
    hasOrphans = false;
    for (const run of await store.abandonedRuns({ agentId, instanceId, trustLeases: needs.hasReplicas })) {
      // Asked after the query and not in it: a run is known here before it is written, so none that has only just
      // become visible is taken for nobody's.
      if (running.has(run.runId) || claimed.has(run.runId)) continue;
      await interrupt(run);
    }
    if (isClosing) return;
    await expireInputs();
    for (const sessionKey of await store.idleQueues(agentId)) {
      if (running.size >= limits.maxRuns) {
        hasOrphans = true;
        return;
      }
      const started = await committer.commit((unit) => takeUpQueue(unit, sessionKey, rules));
      if (started) void begin(started);
    }
  }

  /** What has waited too long is let go; the next that will is looked after in its time. */
  async function expireInputs(): Promise<void> {
    for (const [sessionKey, runIds] of await store.expiredInputs(agentId)) await committer.commit((unit) => takeOut(unit, agentId, sessionKey, runIds, 'expired'));
    const nextMs = await store.nextExpiryMs(agentId);
    if (nextMs !== null) expireIn(nextMs);
  }

  function expireIn(ms: number): void {
    const dueMs = clock.monotonicMs() + Math.max(0, ms);
    if (dueMs >= nextExpiryMs) return;
    nextExpiryMs = dueMs;
    clock.sleep(Math.max(1, ms), closing.signal).then(
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
    while (!closing.signal.aborted) {
      await clock.sleep(limits.leaseMs / 4, closing.signal).catch(() => {});
      if (closing.signal.aborted) return;
      try {
        if (needs.hasReplicas && running.size > 0) await store.renewLeases(instanceId, limits.leaseMs);
        if (needs.hasReplicas || hasOrphans) await sweep();
      } catch (thrown) {
        hasOrphans = true;
        log.warn({ err: thrown }, 'the leases of runs could not be kept');
      }
    }
  }

  async function hearCancels(): Promise<void> {
    while (!closing.signal.aborted) {
      await clock.sleep(250, closing.signal).catch(() => {});
      if (closing.signal.aborted || running.size === 0) continue;
      try {
        for (const runId of await store.cancelRequests(instanceId)) running.get(runId)?.abort.abort(cancelled());
      } catch (thrown) {
        log.debug({ err: thrown }, 'wishes to cancel cannot be heard at the moment');
      }
    }
  }

  // What nobody asks for any more.
  async function tidy(): Promise<void> {
    while (!closing.signal.aborted) {
      try {
        for (const key of await store.expiredSessions(agentId, limits.keptDays)) {
          const session = await store.session(agentId, { key });
          if (session) await needs.forget(session);
        }
      } catch (thrown) {
        log.warn({ err: thrown }, 'old sessions could not be removed');
      }
      await clock.sleep(60 * 60 * 1000, closing.signal).catch(() => {});
    }
  }

  async function wait(sessionKey: string, runId: string, forMs: number, signal: AbortSignal): Promise<RunRecord | 'gone' | 'waiting'> {
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
        const run = await store.run(sessionKey, runId);
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
    const isInTime = await Promise.race([happening.then(() => true, () => true), late]);
    over.abort();
    return isInTime;
  }

  async function cancelRun(session: SessionRecord, runId: string): Promise<string[]> {
    const before = await store.run(session.key, runId);
    if (!before) throw new Problem('not_found', 'run_not_found', 'There is no run of this id in the session.', { param: 'runId' });
    if (before.settledAt !== null) return [];
    // What a run has taken up ends with it.
    if (before.steeredInto !== null) {
      const ended = await cancelRun(session, before.steeredInto);
      return ended.length === 0 ? [] : [runId, ...ended];
    }
    const own = running.get(runId);
    if (own) own.abort.abort(cancelled());
    else await store.requestCancel(runId);
    const after = await wait(session.key, runId, 10_000, closing.signal);
    return typeof after === 'object' && after.status === 'cancelled' ? [runId] : [];
  }

  return {
    async submit(submission) {
      if (isClosing) throw draining();
      let admitted: Admitted | 'again' = 'again';
      accepting += 1;
      try {
        for (let attempt = 0; admitted === 'again'; attempt += 1) {
          if (attempt === 10) throw new Problem('conflict', 'conflict', 'The session is being made by many at once.', { headers: { 'retry-after': '1' } });
          const verdict = await admission(submission);
          if (verdict instanceof Problem) throw verdict;
          if (verdict === 'again') claimed.delete(submission.runId);
          admitted = verdict;
        }
      } catch (error) {
        claimed.delete(submission.runId);
        // It may have been accepted all the same, when only the word of it was lost.
        if (!(error instanceof Problem) || error.kind === 'unavailable') hasOrphans = true;
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
      if (submission.expiresInMs !== null && admitted.started === null) expireIn(submission.expiresInMs);
      if (admitted.steers !== null) {
        const entry = running.get(admitted.steers);
        if (entry) entry.hasSteer = true;
      }
      const settled = admitted.started ? begin(admitted.started) : null;
      if (admitted.interrupts !== null) {
        const own = running.get(admitted.interrupts);
        if (own) own.abort.abort(cancelled());
        else await store.requestCancel(admitted.interrupts);
      }
      return { ...admitted, settled };
    },
    wait,
    async cancel(session, { runId, queue = false }) {
      const fromQueue = queue ? 'all' : runId === undefined ? [] : [runId];
      const waiting = fromQueue.length === 0 ? [] : await committer.commit((unit) => takeOut(unit, agentId, session.key, fromQueue, 'cancelled'));
      const active = runId ?? (await store.session(agentId, { key: session.key }))?.activeRunId ?? null;
      if (active === null || waiting.includes(active)) return waiting;
      return [...waiting, ...(await cancelRun(session, active))];
    },
    cancelWaiting: (session, runId) => committer.commit((unit) => takeOut(unit, agentId, session.key, [runId], 'cancelled')),
    async recover() {
      await sweep();
      keepers = [keepLeases(), tidy(), ...(needs.hasReplicas ? [hearCancels(), watch({ bus, events: needs.events, isOwn: (runId) => running.has(runId), clock, log }, closing.signal)] : [])];
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

function outcomeOf(problem: Problem | null): RunOutcome {
  if (problem === null) return 'completed';
  return problem.code === 'run_interrupted' ? 'interrupted' : problem.code === 'run_cancelled' ? 'cancelled' : 'failed';
}

function inputText({ spoken }: Talk): string {
  const parts = spoken.at(-1)?.message.parts ?? [];
  return parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
}

// What was attached stands before the words and stays.
function replaceLast(messages: ModelMessage[], before: string, after: string): void {
  const last = messages.at(-1);
  if (last?.role !== 'user') return;
  if (typeof last.content === 'string') {
    last.content = last.content.slice(0, last.content.length - before.length) + after;
    return;
  }
  const [first] = last.content;
  if (first?.type === 'text') first.text = first.text.slice(0, first.text.length - before.length) + after;
}

function interruption(run: RunRecord, all: ReturnType<typeof readEvent>[], open: Parameters<typeof foldEvents>[1]): Settlement {
  const usage = { ...noUsage };
  for (const event of all) {
    if (event.type !== 'run.step.ended') continue;
    usage.inputTokens += event.usage.inputTokens;
    usage.outputTokens += event.usage.outputTokens;
  }
  const error = { code: 'run_interrupted', message: 'The agent ended while this run was going on.' };
  const end = { outcome: 'interrupted', usage, finishReason: null, error, hasCheckpoints: true, hasSteered: true } as const;
  const { messageId } = run;
  if (messageId === null) return { ...end, events: [] };
  const metadata = { runId: run.runId, status: end.outcome, model: run.model, finishReason: null, usage };
  // After a steer the run writes its second message, and what came before has its own.
  const begun = all.findLastIndex((event) => event.type === 'message.created' && event.messageId === messageId);
  const message: UiMessage = { id: messageId, role: 'assistant', parts: foldEvents(all.slice(Math.max(0, begun)), open), metadata };
  return { ...end, events: [{ type: 'message.completed', messageId, message }] };
}

function interrupted(): Problem {
  return new Problem('unavailable', 'run_interrupted', 'The agent is going down and has ended the run.', { headers: { 'retry-after': '1' } });
}

function cancelled(): Problem {
  return new Problem('conflict', 'run_cancelled', 'The run was cancelled.');
}

function draining(): Problem {
  return new Problem('unavailable', 'draining', 'The agent is going down and takes no more input.', { headers: { 'retry-after': '1' } });
}

// The run of a failed call can be looked up; its id is the only thing that leads to it.
function named(problem: Problem, runId: string): Problem {
  const { kind, code, message, cause, param, details, headers } = problem;
  return new Problem(kind, code, `${message} (${runId})`, { cause, param, headers, ...(details ? { details } : {}) });
}

function causeOf(problem: Problem | null): unknown {
  return problem?.cause instanceof Error ? problem.cause.message : problem?.cause;
}
