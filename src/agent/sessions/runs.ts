// Runs from their acceptance to their one outcome. The rule it keeps: what was accepted is settled, by the process that
// runs it or, when that one is gone, by the next that looks; and it is settled once.
import type { UiMessage } from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { asProblem, Problem } from '../../kernel/problem.ts';
import type { PluginRegistry } from '../plugins/index.ts';
import type { RunOutcome, SessionEvent } from './events.ts';
import { systemPrompt } from './instructions.ts';
import { foldEvents } from './message.ts';
import type { NewRun, OpenRun, SessionStore, Settlement } from './store.ts';
import type { FinishReason, RunTurn, Turn, TurnNeeds } from './turn.ts';

export interface RunsNeeds {
  store: SessionStore;
  agentId: string;
  name: string;
  /** The model of that id; throws a Problem when it cannot be had. */
  model(modelId: string): Promise<TurnNeeds['model']>;
  runTurn: RunTurn;
  registry: PluginRegistry;
  workspace: string;
  limits: RunLimits;
  /** Whether another living process may have runs of this agent; if not, every open run at start is a dead one's. */
  hasReplicas: boolean;
  clock: Clock;
  log: Log;
}

export interface RunLimits {
  maxRuns: number;
  maxSteps: number;
  toolTimeoutMs: number;
  modelRetries: number;
  leaseMs: number;
}

export interface CompletedRun {
  messageId: string;
  message: UiMessage;
  text: string;
  usage: Turn['usage'];
  finishReason: FinishReason;
}

export interface AcceptedRun {
  sessionId: string;
  runId: string;
  /** Never rejects: how the run ended, once that is durable; a Problem when it did not end well. */
  settled: Promise<CompletedRun | Problem>;
}

export interface Runs {
  /** Resolves once the run is durable; throws a Problem when it was not accepted. */
  start(request: { instructions: string; modelId: string }): Promise<AcceptedRun>;
  /** Settles what a process that is gone has left, and goes on looking while others may leave more. Before any start. */
  recover(): Promise<void>;
  /** Accepts nothing more, waits for what runs, ends it after `drainMs`, and settles it as interrupted. */
  close(drainMs: number): Promise<void>;
}

interface Progress {
  log: Log;
  createdAt: string;
  /** Whether the assistant's message has been created in the log. */
  hasMessage: boolean;
}

// An own settlement that cannot be written is tried again for as long; then the sweep has it.
const settleRetryMs = 30_000;

export function createRuns(needs: RunsNeeds): Runs {
  const { store, agentId, limits, clock, log } = needs;
  const instanceId = id('ins');
  const running = new Map<string, { abort: AbortController; settled: Promise<unknown> }>();
  const closing = new AbortController();
  let isClosing = false;
  let hasOrphans = false;
  let keeper: Promise<void> | undefined;

  async function drive(run: NewRun, instructions: string, abort: AbortController): Promise<CompletedRun | Problem> {
    const runLog = log.child({ runId: run.runId, sessionId: run.sessionId });
    const progress = { log: runLog, createdAt: clock.now().toISOString(), hasMessage: false };
    try {
      const begun = await store.begin(run, [
        { type: 'run.started', model: run.model, messageId: run.messageId },
        { type: 'message.created', messageId: run.messageId, role: 'assistant' },
      ]);
      if (!begun) throw lost();
      progress.hasMessage = true;
      const model = await needs.model(run.model);
      const turn = await needs.runTurn({
        model,
        system: systemPrompt(needs.name, needs.registry),
        instructions,
        registry: needs.registry,
        workspace: needs.workspace,
        maxSteps: limits.maxSteps,
        toolTimeoutMs: limits.toolTimeoutMs,
        modelRetries: limits.modelRetries,
        signal: abort.signal,
        async record(events) {
          if (!(await store.append(run, events))) throw lost();
        },
        clock,
        log: runLog,
      });
      return await settle(run, turn, progress);
    } catch (thrown) {
      const problem = asProblem(thrown);
      const turn: Turn = { parts: [], text: '', usage: { inputTokens: 0, outputTokens: 0 }, finishReason: null, problem, events: [] };
      return settle(run, turn, progress);
    }
  }

  async function settle(run: NewRun, turn: Turn, progress: Progress): Promise<CompletedRun | Problem> {
    const { log: runLog, createdAt, hasMessage } = progress;
    const { problem, usage, finishReason, parts, text } = turn;
    const outcome: RunOutcome = problem === null ? 'completed' : problem.code === 'run_interrupted' ? 'interrupted' : 'failed';
    const message: UiMessage = {
      id: run.messageId,
      role: 'assistant',
      parts,
      metadata: { runId: run.runId, createdAt, status: outcome, model: run.model, finishReason, usage },
    };
    const error = problem && { code: problem.code, message: problem.message };
    const events: SessionEvent[] = [
      ...turn.events,
      ...messageEnd(message, hasMessage),
      { type: 'run.settled', outcome, usage, finishReason, error },
    ];
    if (problem?.kind === 'internal') runLog.error({ err: problem.cause ?? problem }, 'a run failed');
    else runLog.info({ outcome, ...usage, ...(error ? { code: error.code, cause: causeOf(problem) } : {}) }, 'a run was settled');
    const written = await writeSettlement(() => store.settle(run, { outcome, usage, finishReason, error, events }), runLog);
    if (written instanceof Problem) return written;
    if (!written) return lost();
    if (problem) return named(problem, run.runId);
    return { messageId: run.messageId, message, text, usage, finishReason: finishReason ?? 'other' };
  }

  // An answer follows the settlement, so a database that is away for a moment is waited for.
  async function writeSettlement(write: () => Promise<boolean>, runLog: Log): Promise<boolean | Problem> {
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

  async function interruptAbandoned(): Promise<void> {
    hasOrphans = false;
    const open = await store.openRuns({ agentId, instanceId, trustLeases: needs.hasReplicas });
    for (const run of open) {
      // Asked after the query and not in it: a run is known here before it is accepted, so none that has only just
      // become visible is taken for nobody's.
      if (running.has(run.runId)) continue;
      const written = await store.settleFor(run, (events) => interruption(run, events));
      if (written) log.warn({ runId: run.runId, sessionId: run.sessionId }, 'settled a run that its process had left behind');
    }
  }

  // While it runs: keeps this process's leases, and looks after runs whose lease nobody keeps.
  async function keepLeases(): Promise<void> {
    while (!closing.signal.aborted) {
      await clock.sleep(limits.leaseMs / 4, closing.signal).catch(() => {});
      if (closing.signal.aborted) return;
      try {
        if (needs.hasReplicas && running.size > 0) await store.renewLeases(instanceId, limits.leaseMs);
        if (needs.hasReplicas || hasOrphans) await interruptAbandoned();
      } catch (thrown) {
        hasOrphans = true;
        log.warn({ err: thrown }, 'the leases of runs could not be kept');
      }
    }
  }

  return {
    async start({ instructions, modelId }) {
      if (isClosing) throw interrupted();
      if (running.size >= limits.maxRuns) {
        throw new Problem('rate_limited', 'rate_limited', `The agent has ${limits.maxRuns} runs already, which is as many as it takes.`, {
          headers: { 'retry-after': '5' },
        });
      }
      const run: NewRun = {
        runId: id('run'),
        sessionId: id('ses'),
        messageId: id('msg'),
        agentId,
        model: modelId,
        instanceId,
        leaseMs: limits.leaseMs,
      };
      const abort = new AbortController();
      const accepting = store.accept(run, [{ type: 'session.created', kind: 'execute' }, ...userMessage(instructions, clock)]);
      // Known before it is accepted, so that it counts at once and the sweep takes it for nobody's at no time.
      const settled = accepting.then(() => drive(run, instructions, abort));
      running.set(run.runId, { abort, settled });
      const forget = () => running.delete(run.runId);
      settled.then(forget, forget);
      await accepting.catch((error: unknown) => {
        // It may have been accepted all the same, when only the word of it was lost.
        hasOrphans = true;
        throw error;
      });
      return { sessionId: run.sessionId, runId: run.runId, settled };
    },
    async recover() {
      await interruptAbandoned();
      keeper = keepLeases();
    },
    async close(drainMs) {
      isClosing = true;
      const ended = new AbortController();
      const all = Promise.allSettled([...running.values()].map((run) => run.settled));
      await Promise.race([all, clock.sleep(drainMs, ended.signal).catch(() => {})]);
      ended.abort();
      for (const run of running.values()) run.abort.abort(interrupted());
      await Promise.allSettled([...running.values()].map((run) => run.settled));
      closing.abort();
      await keeper;
    },
  };
}

function userMessage(instructions: string, clock: Clock): SessionEvent[] {
  const messageId = id('msg');
  const message: UiMessage = {
    id: messageId,
    role: 'user',
    parts: [{ type: 'text', text: instructions }],
    metadata: { createdAt: clock.now().toISOString(), origin: 'execute' },
  };
  return [
    { type: 'message.created', messageId, role: 'user' },
    { type: 'message.completed', messageId, message },
  ];
}

function interruption(run: OpenRun, before: SessionEvent[]): Settlement {
  const usage = { inputTokens: 0, outputTokens: 0 };
  for (const event of before) {
    if (event.type !== 'run.step.ended') continue;
    usage.inputTokens += event.usage.inputTokens;
    usage.outputTokens += event.usage.outputTokens;
  }
  const error = { code: 'run_interrupted', message: 'The agent ended while this run was going on.' } as const;
  const end = { outcome: 'interrupted', usage, finishReason: null, error } as const;
  const metadata = { runId: run.runId, status: end.outcome, model: run.model, finishReason: null, usage };
  const message: UiMessage = { id: run.messageId, role: 'assistant', parts: foldEvents(before), metadata };
  const hasMessage = before.some(({ type }) => type === 'run.started');
  return { ...end, events: [...messageEnd(message, hasMessage), { type: 'run.settled', ...end }] };
}

// A run that never began has made no message, so there is none to complete.
function messageEnd(message: UiMessage, hasMessage: boolean): SessionEvent[] {
  return hasMessage ? [{ type: 'message.completed', messageId: message.id, message }] : [];
}

function interrupted(): Problem {
  return new Problem('unavailable', 'run_interrupted', 'The agent is going down and has ended the run.', { headers: { 'retry-after': '1' } });
}

function lost(): Problem {
  return new Problem('unavailable', 'run_interrupted', 'Another process of this agent took this one for dead and has ended the run.');
}

// The run of a failed call can be looked up; its id is the only thing that leads to it.
function named(problem: Problem, runId: string): Problem {
  const { kind, code, message, cause, param, details, headers } = problem;
  return new Problem(kind, code, `${message} (${runId})`, { cause, param, headers, ...(details ? { details } : {}) });
}

function causeOf(problem: Problem | null): unknown {
  return problem?.cause instanceof Error ? problem.cause.message : problem?.cause;
}
