// Executes one run, from its start to its settlement. Every outcome is a settlement; nothing throws.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { noSnapshot } from '../../snapshots/index.ts';
import type { RunOutcome, SessionEvent } from '../event-log/events.ts';
import { compact, planWholeConversation } from '../model-loop/compaction.ts';
import type { LoopResult } from '../model-loop/loop.ts';
import { modelProblem } from '../model-loop/model-problem.ts';
import { createModelRetry } from '../model-loop/model-retry.ts';
import { createRunWriter, runLost } from '../model-loop/run-writer.ts';
import { endSpan, runSpan } from '../model-loop/spans.ts';
import { noUsage } from '../model-loop/usage.ts';
import type { ActiveRun, CompletedRun, RunHandle, RunnerOptions, RunResult } from './active-run.ts';
import type { StartedRun } from './submission.ts';
import { answer } from './answer.ts';
import { untilAvailable } from './database-wait.ts';
import { maxFilesShown } from './run-events.ts';
import type { Settlement } from './settlement.ts';

export type ExecuteRun = (started: StartedRun, handle: RunHandle) => Promise<RunResult>;

/** Every run is traced as a span. */
export function createRunner(options: RunnerOptions): ExecuteRun {
  const { agentId, name, traces } = options;
  return async (started, handle) => {
    const { session, runId, model } = started;
    const { traceparent } = handle;
    const span = runSpan(traces, { agentId, name, sessionId: session.id, runId, model, traceparent });
    let end: CompletedRun | Problem | undefined;
    try {
      const result = await traces.runInSpan(span, () => execute(options, started, handle));
      ({ end } = result);
      return result;
    } finally {
      endSpan(span, spanEndOf(end));
    }
  };
}

function spanEndOf(end: CompletedRun | Problem | undefined): Parameters<typeof endSpan>[1] {
  if (end instanceof Problem) return { usage: undefined, finishReason: undefined, reason: end.code };
  if (end === undefined) return { usage: undefined, finishReason: undefined, reason: 'internal_error' };
  return { usage: end.usage, finishReason: end.finishReason, reason: undefined };
}

async function execute(options: RunnerOptions, started: StartedRun, handle: RunHandle): Promise<RunResult> {
  const { eventLog, clock, log } = options;
  const { session, runId, messageId } = started;
  const writer = createRunWriter({
    sessionKey: session.key,
    runId,
    log: eventLog,
    clock,
    startSeq: started.seq,
    signal: handle.abort.signal,
    onFailure: (error) => handle.abort.abort(asProblem(error)),
  });
  if (messageId !== null) writer.setMessage(messageId);
  const workspace = await options.workspaces.of(session).catch(asProblem);
  const run: ActiveRun = {
    started,
    handle,
    writer,
    workspace,
    snapshot:
      workspace instanceof Problem
        ? noSnapshot
        : options.snapshots.begin({ sessionKey: session.key, runId, workspace }),
    messageId,
    seq: started.seq,
    createdAt: clock.now().toISOString(),
    runLog: log.child({ runId, sessionId: session.id }),
  };
  try {
    return await finish(options, run, await produceResult(options, run));
  } finally {
    writer.dispose();
  }
}

async function produceResult(options: RunnerOptions, run: ActiveRun): Promise<LoopResult> {
  const { started, handle } = run;
  const { reasoningEffort, delivery } = started;
  try {
    const model = await options.model(started.model, reasoningEffort === null ? {} : { reasoningEffort });
    return delivery === 'compact'
      ? await compactConversation(options, run, model)
      : await answer(options, run, model);
  } catch (error) {
    const { signal } = handle.abort;
    const problem = signal.aborted && signal.reason instanceof Problem ? signal.reason : modelProblem(error);
    return { parts: [], text: '', usage: noUsage, finishReason: null, problem };
  }
}

async function compactConversation(
  { eventLog, modelLimits, limits, clock }: RunnerOptions,
  { started: { session, seq }, handle, writer }: ActiveRun,
  model: LanguageModelV3,
): Promise<LoopResult> {
  const { signal } = handle.abort;
  const conversation = await untilAvailable(() => eventLog.conversation(session, seq, null), {
    clock,
    signal,
  });
  if (conversation.messages.length === 0)
    throw new Problem(
      'conflict',
      'nothing_to_compact',
      'There is nothing to compact: no message was added since the last compaction.',
    );
  const record = (events: SessionEvent[]) => writer.record(events);
  const { modelRetries, modelWaitMs } = limits;
  const modelRetry = createModelRetry({ modelRetries, modelWaitMs, record, clock, signal });
  const { summary, usage } = await compact({
    writer,
    model,
    plan: planWholeConversation(conversation),
    earlierSummary: conversation.summary,
    contextTokens: (await modelLimits.of(model.modelId)).contextTokens,
    reason: 'asked',
    signal,
    async recover(error) {
      // A compaction has one step.
      if (!(await modelRetry.recover(error, 1))) throw error;
    },
  });
  return { parts: [], text: summary, usage, finishReason: 'stop', problem: null };
}

async function finish(options: RunnerOptions, run: ActiveRun, result: LoopResult): Promise<RunResult> {
  const { started, handle, writer, messageId, createdAt, runLog } = run;
  const { session, runId } = started;
  const { problem, usage, finishReason, parts, text } = result;
  const outcome = outcomeOf(problem);
  const fileEvents = await endSnapshot(run);
  const changedFiles = fileEvents.find((event) => event.type === 'workspace.changed')?.count;
  const metadata = {
    runId,
    createdAt,
    status: outcome,
    model: started.model,
    finishReason,
    usage,
    ...(changedFiles === undefined ? {} : { changedFiles }),
  };
  const message: UiMessage = { id: messageId ?? runId, role: 'assistant', parts, metadata };
  const { events, hasCheckpoints } = await writer.close();
  const settlement: Settlement = {
    outcome,
    usage,
    finishReason,
    error: problem && { code: problem.code, message: problem.message },
    events:
      messageId === null
        ? events
        : [...events, { type: 'message.completed' as const, messageId, message }, ...fileEvents],
    hasCheckpoints,
    hasTakenSteers: handle.hasTakenSteers,
  };
  logOutcome(run, settlement, problem);
  const settledRun = await options.settle({ runId, sessionKey: session.key }, settlement, runLog);
  if (settledRun instanceof Problem) return { end: settledRun, next: null };
  if (settledRun === null) return { end: runLost(), next: null };
  const end = problem
    ? withRunId(problem, runId)
    : { messageId: message.id, message, text, usage, finishReason: finishReason ?? 'other' };
  return { end, next: settledRun.next };
}

async function endSnapshot({ snapshot }: ActiveRun): Promise<SessionEvent[]> {
  const { files, notice } = await snapshot.end();
  if (notice !== null) return [{ type: 'run.warning', code: 'snapshot_skipped', message: notice }];
  if (files.length === 0) return [];
  return [{ type: 'workspace.changed', count: files.length, files: files.slice(0, maxFilesShown) }];
}

function logOutcome(
  { runLog }: ActiveRun,
  { outcome, usage }: Settlement,
  problem: LoopResult['problem'],
): void {
  if (problem?.kind === 'internal') {
    runLog.error({ err: problem.cause ?? problem }, 'a run failed');
    return;
  }
  const failure = problem ? { code: problem.code, cause: causeOf(problem) } : {};
  runLog.info({ outcome, ...usage, ...failure }, 'a run was settled');
}

function outcomeOf(problem: Problem | null): RunOutcome {
  if (problem === null) return 'completed';
  if (problem.code === 'run_interrupted') return 'interrupted';
  return problem.code === 'run_cancelled' ? 'cancelled' : 'failed';
}

// The message is the only part of the error that can carry the run's id, with which the caller looks it up.
function withRunId(problem: Problem, runId: string): Problem {
  const { kind, code, message, cause, param, details, headers } = problem;
  return new Problem(kind, code, `${message} (${runId})`, {
    cause,
    param,
    headers,
    ...(details ? { details } : {}),
  });
}

function causeOf({ cause }: Problem): unknown {
  return cause instanceof Error ? cause.message : cause;
}
