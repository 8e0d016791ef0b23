// One run, from its beginning to its settlement: what the model is shown, what it answers, and what it is told meanwhile.
// The rule it keeps: it ends in a settlement whatever happens on the way, and never throws.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessage } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { silentTraces, type Traces } from '../../../kernel/telemetry/traces.ts';
import type { PluginRegistry } from '../../plugins/index.ts';
import type { Approvals } from '../approvals/approvals.ts';
import { readEvent, type RunOutcome } from '../event-log/events.ts';
import type { Bus } from '../event-log/bus.ts';
import type { Committer } from '../event-log/committer.ts';
import type { EventStore, LogEntry } from '../event-log/store.ts';
import { lockSession, segmentsOf, type SessionStore } from '../event-log/session-store.ts';
import { compact } from '../model-loop/compaction.ts';
import { estimateTokens, type Conversation } from '../event-log/conversation.ts';
import { systemPrompt, systemSections } from '../model-loop/system-prompt.ts';
import { createRunWriter, runLost, type RunWriter } from '../model-loop/run-writer.ts';
import { modelProblem } from '../model-loop/model-problem.ts';
import { endSpan, runSpan } from '../model-loop/spans.ts';
import type { Talks } from '../event-log/conversation-cache.ts';
import type { FinishReason, ModelMessage, RunModelLoop, LoopResult } from '../model-loop/loop.ts';
import { queueUpdated, type StartedRun } from './admission.ts';
import { noUsage, type RunKey, type Settled, type Settlement } from './settlement.ts';
import { moveMessage, steerRun, waitingRuns, type RunRecord, type RunStore } from './store.ts';

/** What is loaded late; see `turn/loop.ts`. */
export interface Loop {
  runTurn: RunModelLoop;
  summarize(needs: {
    model: LanguageModelV3;
    messages: ModelMessage[];
    signal: AbortSignal;
  }): Promise<{ summary: string; usage: RunUsage }>;
  toModelMessages(talk: Conversation): Promise<ModelMessage[]>;
}

export interface RunNeeds {
  store: SessionStore;
  runStore: RunStore;
  events: EventStore;
  committer: Committer;
  talks: Talks;
  bus: Bus;
  approvals: Approvals;
  agentId: string;
  name: string;
  /** The model of that id; throws a Problem when it cannot be had. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /** How many tokens it takes, where that is known. */
  contextTokens(modelId: string): Promise<number | null>;
  loop: Loop;
  registry: PluginRegistry;
  workspace: string;
  limits: { maxSteps: number; toolTimeoutMs: number; modelRetries: number };
  /** Whether another process may have queued something for a run of this one. */
  hasReplicas: boolean;
  /** Writes the end down; null when the run was no longer this process's, a Problem when it could not be written. */
  settle(run: RunKey, settlement: Settlement, runLog: Log): Promise<Settled | null | Problem>;
  clock: Clock;
  log: Log;
  traces?: Traces;
}

export interface CompletedRun {
  messageId: string;
  message: UiMessage;
  text: string;
  usage: LoopResult['usage'];
  finishReason: FinishReason;
}

/** A run under way, as seen from outside of it. */
export interface Going {
  abort: AbortController;
  /** Something may be there for the next step. */
  hasSteer: boolean;
  /** Something was, and ends with the run. */
  hasTakenSteers: boolean;
  /** The span of the request that asked for it, where that is known. */
  request: string | undefined;
}

export interface Driven {
  end: CompletedRun | Problem;
  /** What begins in its place, and is written down as begun. */
  next: StartedRun | null;
}

// Of what the model takes; beyond it the past is summed up before the next step.
const fullShare = 0.8;

interface Writing {
  model: LanguageModelV3;
  journal: RunWriter;
  going: Going;
  messageId(): string;
  setMessage(messageId: string): void;
  createdAt: string;
  runLog: Log;
}

export function createRunner(needs: RunNeeds): (started: StartedRun, going: Going) => Promise<Driven> {
  const {
    store,
    runStore,
    committer,
    talks,
    bus,
    agentId,
    limits,
    clock,
    log,
    registry,
    loop,
    traces = silentTraces,
  } = needs;
  const { hooks } = registry;

  async function runTraced(started: StartedRun, going: Going): Promise<Driven> {
    const { session, runId, model } = started;
    const span = runSpan(traces, {
      agentId,
      name: needs.name,
      sessionId: session.id,
      runId,
      model,
      request: going.request,
    });
    let end: CompletedRun | Problem | undefined;
    try {
      const driven = await traces.within(span, () => drive(started, going));
      ({ end } = driven);
      return driven;
    } finally {
      const done = end instanceof Problem ? undefined : end;
      endSpan(span, {
        usage: done?.usage,
        finishReason: done?.finishReason,
        reason: end instanceof Problem ? end.code : end === undefined ? 'internal_error' : undefined,
      });
    }
  }

  async function drive(started: StartedRun, going: Going): Promise<Driven> {
    const { session, runId } = started;
    const runLog = log.child({ runId, sessionId: session.id });
    const { abort } = going;
    const journal = createRunWriter({
      sessionKey: session.key,
      runId,
      committer,
      bus,
      clock,
      failed: (error) => abort.abort(asProblem(error)),
    });
    let messageId = started.messageId;
    const createdAt = clock.now().toISOString();
    const setMessage = (next: string) => {
      messageId = next;
      journal.setMessage(next);
    };
    if (messageId !== null) journal.setMessage(messageId);
    let turn: LoopResult;
    try {
      const settings = started.reasoningEffort === null ? {} : { reasoningEffort: started.reasoningEffort };
      const model = await needs.model(started.model, settings);
      turn =
        started.delivery === 'compact'
          ? await compactNow(started, model, journal, abort.signal)
          : await answer(started, {
              model,
              journal,
              going,
              messageId: () => messageId as string,
              setMessage,
              createdAt,
              runLog,
            });
    } catch (thrown) {
      const reason: unknown = abort.signal.reason;
      turn = {
        parts: [],
        text: '',
        usage: noUsage,
        finishReason: null,
        problem: abort.signal.aborted && reason instanceof Problem ? reason : modelProblem(thrown),
      };
    }
    try {
      return await finish(started, turn, {
        journal,
        messageId,
        createdAt,
        hasTakenSteers: going.hasTakenSteers,
        runLog,
      });
    } finally {
      journal.dispose();
    }
  }

  async function answer(started: StartedRun, writing: Writing): Promise<LoopResult> {
    const { session, runId } = started;
    const { model, journal, going, runLog } = writing;
    const { signal } = going.abort;
    const context = { sessionId: session.id, runId, signal };
    const talk = await talks.read(session, started.seq, started.input);
    const messages = await loop.toModelMessages(talk);
    const text = inputText(talk);
    const given = await hooks.pipeline(
      'prompt.before',
      { system: systemPrompt(systemSections(needs.name, registry, session)), text },
      context,
    );
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
        return needs.approvals.ask({
          sessionKey: session.key,
          runId,
          isAttended: now?.attended ?? false,
          queueLength: now?.queueLength ?? 0,
          toolCallId,
          toolName: tool.name,
          input,
          signal,
          journal,
        });
      },
      steer: (parts) => (going.hasSteer ? takeSteers(started, writing, parts) : Promise.resolve([])),
      async shorten(current, lastInputTokens) {
        if (earlier < 1) return null;
        const window = await needs.contextTokens(started.model);
        if (
          window === null ||
          Math.max(lastInputTokens, estimateTokens(current) + estimateTokens(given.system)) <
            window * fullShare
        )
          return null;
        const past: Conversation = { summary: talk.summary, spoken: talk.spoken.slice(0, -1) };
        const { summary, usage } = await compact({
          journal,
          model,
          talk: past,
          toModelMessages: loop.toModelMessages,
          summarize: loop.summarize,
          reason: 'full',
          signal,
        });
        const own = current.slice(earlier);
        earlier = 0;
        return { messages: [...(await loop.toModelMessages({ summary, spoken: [] })), ...own], usage };
      },
      clock,
      log: runLog,
      traces,
    });
    hooks.effect(
      'prompt.after',
      { text: turn.text, outcome: turn.problem === null ? 'completed' : turn.problem.code },
      context,
    );
    return turn;
  }

  /** Gives the model what was said meanwhile: the message so far ends, and a new one begins behind it. */
  async function takeSteers(
    { session, runId }: StartedRun,
    { journal, going, messageId, setMessage, createdAt }: Writing,
    parts: LoopResult['parts'],
  ): Promise<ModelMessage[]> {
    if (!needs.hasReplicas) going.hasSteer = false;
    const isSteer = ({ delivery }: RunRecord) => delivery === 'steer';
    if (!(await runStore.queue(session.key)).some(isSteer)) return [];
    const next = id('msg');
    const current = messageId();
    let steers: RunRecord[] = [];
    await journal.recordFrom(async (unit) => {
      const locked = await lockSession(unit, agentId, { key: session.key });
      const waiting = await waitingRuns(unit, session.key);
      steers = locked?.activeRunId === runId ? waiting.filter(isSteer) : [];
      if (!locked || steers.length === 0) return null;
      for (const steer of steers) await steerRun(unit, steer.runId, runId);
      await moveMessage(unit, runId, next);
      const rest = waiting.filter((run) => !isSteer(run));
      const events: LogEntry[] = [
        {
          type: 'message.completed',
          messageId: current,
          message: {
            id: current,
            role: 'assistant',
            parts,
            metadata: { runId, createdAt, status: 'completed' },
          },
        },
        ...steers.map((steer): LogEntry => ({
          type: 'queue.removed',
          runId: steer.runId,
          queueItemId: steer.queueItemId ?? steer.runId,
          reason: 'steered',
        })),
        ...(rest.length === 0
          ? []
          : [{ ...queueUpdated(rest, rest.length, (index) => index + 1), runId: null }]),
        { type: 'message.created', messageId: next, role: 'assistant', index: locked.messageCount },
      ];
      return { events, change: { queue: -steers.length, messages: 1 } };
    });
    if (steers.length === 0) return [];
    going.hasTakenSteers = true;
    setMessage(next);
    const said: UiMessage[] = [];
    for (const steer of steers) {
      const [event] = await needs.events
        .messageEvents(segmentsOf(session, Number.MAX_SAFE_INTEGER), steer.inputMessageId ?? '')
        .then((found) => found.filter(({ type }) => type === 'message.completed'));
      if (event) said.push((readEvent(event) as { message: UiMessage }).message);
    }
    return loop.toModelMessages({ summary: null, spoken: said.map((message) => ({ seq: 0, message })) });
  }

  async function compactNow(
    { session, seq }: StartedRun,
    model: LanguageModelV3,
    journal: RunWriter,
    signal: AbortSignal,
  ): Promise<LoopResult> {
    const talk = await talks.read(session, seq, null);
    if (talk.spoken.length === 0)
      throw new Problem('conflict', 'nothing_to_compact', 'Nothing has been said since the last time.');
    const { summary, usage } = await compact({
      journal,
      model,
      talk,
      toModelMessages: loop.toModelMessages,
      summarize: loop.summarize,
      reason: 'asked',
      signal,
    });
    return { parts: [], text: summary, usage, finishReason: 'stop', problem: null };
  }

  async function finish(
    started: StartedRun,
    turn: LoopResult,
    {
      journal,
      messageId,
      createdAt,
      hasTakenSteers,
      runLog,
    }: {
      journal: RunWriter;
      messageId: string | null;
      createdAt: string;
      hasTakenSteers: boolean;
      runLog: Log;
    },
  ): Promise<Driven> {
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
      events: [
        ...tail.events,
        ...(messageId === null ? [] : [{ type: 'message.completed' as const, messageId, message }]),
      ],
      hasCheckpoints: tail.hasCheckpoints,
      hasTakenSteers,
    };
    if (problem?.kind === 'internal') runLog.error({ err: problem.cause ?? problem }, 'a run failed');
    else
      runLog.info(
        { outcome, ...usage, ...(error ? { code: error.code, cause: causeOf(problem) } : {}) },
        'a run was settled',
      );
    const written = await needs.settle({ runId, sessionKey: session.key }, settlement, runLog);
    if (written instanceof Problem) return { end: written, next: null };
    if (written === null) return { end: runLost(), next: null };
    const end = problem
      ? named(problem, runId)
      : { messageId: message.id, message, text, usage, finishReason: finishReason ?? 'other' };
    return { end, next: written.next };
  }

  return runTraced;
}

function outcomeOf(problem: Problem | null): RunOutcome {
  if (problem === null) return 'completed';
  return problem.code === 'run_interrupted'
    ? 'interrupted'
    : problem.code === 'run_cancelled'
      ? 'cancelled'
      : 'failed';
}

function inputText({ spoken }: Conversation): string {
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

// The run of a failed call can be looked up; its id is the only thing that leads to it.
function named(problem: Problem, runId: string): Problem {
  const { kind, code, message, cause, param, details, headers } = problem;
  return new Problem(kind, code, `${message} (${runId})`, {
    cause,
    param,
    headers,
    ...(details ? { details } : {}),
  });
}

function causeOf(problem: Problem | null): unknown {
  return problem?.cause instanceof Error ? problem.cause.message : problem?.cause;
}
