// One turn: the model and the tools in a loop, on the `ai` package. It hides that package; what it keeps is that
// each step and each tool call is in the log before it happens and its result before the model sees it.
import { dynamicTool, jsonSchema, streamText, type ModelMessage, type ToolSet } from 'ai';
import type { LanguageModelV3, LanguageModelV3StreamPart } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import { Problem } from '../../../kernel/problem.ts';
import { silentTraces, withSpan, type Traces } from '../../../kernel/telemetry/traces.ts';
import { callAction, type Hooks, type PluginRegistry, type Tool } from '../../plugins/index.ts';
import type { SessionEvent } from '../event-log/events.ts';
import type { RunWriter } from './run-writer.ts';
import { foldMessage } from './message.ts';
import { modelProblem } from './model-problem.ts';
import { endSpan, stepSpan, toolSpan } from './spans.ts';

export type FinishReason = 'stop' | 'length' | 'content-filter' | 'tool-calls' | 'error' | 'other';

export type { ModelMessage };

export interface ModelLoopOptions {
  model: LanguageModelV3;
  system: string;
  /** The conversation so far, the new input last. */
  messages: ModelMessage[];
  registry: PluginRegistry;
  hooks: Hooks;
  sessionId: string;
  runId: string;
  workspace: string;
  maxSteps: number;
  toolTimeoutMs: number;
  /** How often a step that failed before its first byte is tried again. */
  modelRetries: number;
  /** Ends the turn; a Problem as its reason is what the turn fails with. */
  signal: AbortSignal;
  journal: Pick<RunWriter, 'record' | 'defer' | 'addText' | 'endText'>;
  /** Asks whether the tool may run. Resolves with a denial at the latest when the question expires. */
  approve(call: { tool: Tool; toolCallId: string; input: unknown }): Promise<Verdict>;
  /** Input that is to be given to the model at this step. `parts` is the message so far, which ends here when there is any. */
  steer(parts: UiMessagePart[]): Promise<ModelMessage[]>;
  /** The conversation as it may be shown now, when it would not fit as it is, and what the model took to shorten it. */
  shorten(
    messages: ModelMessage[],
    lastInputTokens: number,
  ): Promise<{ messages: ModelMessage[]; usage: RunUsage } | null>;
  clock: Clock;
  log: Log;
  /** Steps and tools are spans where it is traced. */
  traces?: Traces;
}

export type Verdict = { isApproved: true } | { isApproved: false; approvalId: string | null; reason: string };

/** What came of it, also of a turn that failed half-way. */
export interface LoopResult {
  parts: UiMessagePart[];
  text: string;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** Null when the turn ended well. */
  problem: Problem | null;
}

interface StepEnd {
  finishReason: string;
  usage: { inputTokens: number | undefined; outputTokens: number | undefined };
}

export type RunModelLoop = (needs: ModelLoopOptions) => Promise<LoopResult>;

/** Never throws. */
export async function runModelLoop(needs: ModelLoopOptions): Promise<LoopResult> {
  const { journal, hooks, log, clock, traces = silentTraces } = needs;
  let fold = foldMessage();
  const usage: RunUsage = { inputTokens: 0, outputTokens: 0 };
  const stop = new AbortController();
  const signal = AbortSignal.any([needs.signal, stop.signal]);
  const context = { sessionId: needs.sessionId, runId: needs.runId, signal };
  let messages = needs.messages;
  let finishReason: FinishReason | null = null;
  let lastInputTokens = 0;
  let failure: unknown;

  function add({ inputTokens, outputTokens }: RunUsage): void {
    usage.inputTokens += inputTokens;
    usage.outputTokens += outputTokens;
  }

  // `ai` swallows what its callbacks throw, so a log that cannot be written ends the turn from here.
  async function record(events: SessionEvent[]): Promise<void> {
    try {
      await journal.record(events);
    } catch (error) {
      failure ??= error;
      stop.abort();
      throw error;
    }
  }

  /** One call of the model and of the tools that it asks for. */
  async function takeStep(step: number): Promise<{ wantsMore: boolean; hasBegun: boolean }> {
    const span = stepSpan(traces, { model: needs.model.modelId, step, sessionId: needs.sessionId });
    let end: StepEnd | undefined;
    const progress = { hasBegun: false };
    try {
      return await traces.within(span, () => runStep(step, progress, (ended) => (end = ended)));
    } catch (error) {
      // A stream that is cut throws; that is a failure of the step like one that the stream tells.
      failure ??= error;
      return { wantsMore: false, hasBegun: progress.hasBegun };
    } finally {
      const reason = failure === undefined ? undefined : modelProblem(failure).code;
      endSpan(span, {
        usage: end === undefined ? undefined : counted(end.usage),
        finishReason: end && finishReasonOf(end),
        reason,
      });
    }
  }

  async function runStep(
    step: number,
    progress: { hasBegun: boolean },
    ended: (end: StepEnd) => void,
  ): Promise<{ wantsMore: boolean; hasBegun: boolean }> {
    let called = 0;
    let answered = 0;
    let end: StepEnd | undefined;
    const result = streamText({
      model: withoutConsole(needs.model, log),
      instructions: needs.system,
      messages,
      tools: toolSet(needs, record),
      maxRetries: 0,
      headers: { traceparent: traces.traceparent() },
      abortSignal: signal,
      // Errors come through the stream; without this they would be printed as well.
      onError: () => {},
    });
    // Rejects when the step fails, which the stream tells as well.
    const responses = Promise.resolve(result.responseMessages).catch(() => []);
    fold.startStep();
    for await (const part of result.stream) {
      switch (part.type) {
        case 'text-delta':
        case 'reasoning-delta': {
          progress.hasBegun = true;
          const type = part.type === 'text-delta' ? 'text' : 'reasoning';
          fold.addText(type, `${step}:${part.id}`, part.text);
          journal.addText(type, `${step}:${part.id}`, part.text);
          break;
        }
        case 'text-end':
        case 'reasoning-end':
          journal.endText(part.type === 'text-end' ? 'text' : 'reasoning', `${step}:${part.id}`);
          break;
        case 'source':
          progress.hasBegun = true;
          if (part.sourceType === 'url') fold.addSource(part);
          break;
        case 'tool-call':
          progress.hasBegun = true;
          called += 1;
          fold.startTool(part.toolCallId, part.toolName, part.input);
          break;
        case 'tool-result':
          answered += 1;
          fold.endTool(part.toolCallId, { output: part.output });
          break;
        case 'tool-error': {
          answered += 1;
          const errorText = part.error instanceof Error ? part.error.message : String(part.error);
          fold.endTool(part.toolCallId, { errorText });
          // A call that never reached a tool of ours: there is none of that name, or its input is no JSON.
          if (!(part.error instanceof ActionFailed)) {
            await record([
              {
                type: 'tool.failed',
                toolCallId: part.toolCallId,
                toolName: part.toolName,
                errorText,
                durationMs: 0,
              },
            ]);
          }
          break;
        }
        case 'finish-step': {
          end = part;
          ended(part);
          const taken = counted(part.usage);
          add(taken);
          lastInputTokens = taken.inputTokens + taken.outputTokens;
          break;
        }
        case 'error':
          failure ??= part.error;
          break;
        default:
          // Edges of blocks, and what no model of the gateway sends.
          break;
      }
    }
    if (end) {
      finishReason = finishReasonOf(end);
      journal.defer([{ type: 'run.step.ended', step, finishReason, usage: counted(end.usage) }]);
      hooks.effect('step.after', { step, finishReason }, context);
    }
    messages = [...messages, ...(await responses)];
    return {
      wantsMore: called > 0 && answered >= called && failure === undefined,
      hasBegun: progress.hasBegun,
    };
  }

  /** The same, tried again where the gateway failed before anything came of it. */
  async function takeStepPatiently(step: number): Promise<boolean> {
    for (let attempt = 1; ; attempt += 1) {
      const { wantsMore, hasBegun } = await takeStep(step);
      if (failure === undefined || hasBegun || signal.aborted || attempt > needs.modelRetries)
        return wantsMore;
      const problem = modelProblem(failure);
      if (!isPassing(problem)) return wantsMore;
      failure = undefined;
      fold.dropStep();
      const delayMs = 500 * 2 ** (attempt - 1);
      await record([{ type: 'run.retrying', step, attempt, delayMs, code: problem.code }]);
      await clock.sleep(delayMs, signal);
    }
  }

  let isOut = false;
  try {
    for (let step = 1; ; step += 1) {
      if (step > needs.maxSteps) {
        isOut = true;
        break;
      }
      const shorter = await needs.shorten(messages, lastInputTokens);
      if (shorter !== null) {
        messages = shorter.messages;
        add(shorter.usage);
      }
      await hooks.guard('step.before', { step }, context);
      hooks.effect('step.before', { step }, context);
      // The first was recorded with the beginning of the run.
      if (step > 1) await record([{ type: 'run.step.started', step }]);
      const wantsMore = await takeStepPatiently(step);
      if (failure !== undefined || signal.aborted) break;
      const said = await needs.steer(fold.parts());
      if (said.length > 0) {
        messages = [...messages, ...said];
        fold = foldMessage();
      } else if (!wantsMore) break;
    }
  } catch (error) {
    failure ??= error;
  }

  fold.close('The run ended during this call; whether it took effect is not known.');
  const problem = turnProblem();
  if (problem === null) {
    const answer = await hooks.pipeline('answer.before', { text: fold.text() }, context);
    if (answer.text !== fold.text()) fold.replaceText(answer.text);
    hooks.effect('answer.after', { text: fold.text() }, context);
  }
  return { parts: fold.parts(), text: fold.text(), usage, finishReason, problem };

  function turnProblem(): Problem | null {
    // Whoever ended the turn knows better why than the errors that followed.
    if (needs.signal.aborted) {
      const reason: unknown = needs.signal.reason;
      return reason instanceof Problem
        ? reason
        : new Problem('unavailable', 'run_interrupted', 'The run was ended.');
    }
    if (failure !== undefined) return modelProblem(failure);
    if (isOut)
      return new Problem(
        'impossible',
        'step_limit_reached',
        `After ${needs.maxSteps} steps the model still asks for tools.`,
      );
    if (finishReason === null || finishReason === 'error') {
      return new Problem('upstream_failed', 'upstream_failed', 'The model ended its answer with an error.');
    }
    return null;
  }
}

// What may be otherwise in a moment.
function isPassing({ kind }: Problem): boolean {
  return (
    kind === 'unavailable' ||
    kind === 'rate_limited' ||
    kind === 'upstream_failed' ||
    kind === 'upstream_timeout'
  );
}

/** Carries the reason of a failed action to the model, which is shown the error as text; its class says that it was ours. */
class ActionFailed extends Error {
  override toString(): string {
    return this.message;
  }
}

function toolSet(needs: ModelLoopOptions, record: (events: SessionEvent[]) => Promise<void>): ToolSet {
  return Object.fromEntries(
    needs.registry.tools.map((tool) => [
      tool.name,
      dynamicTool({
        description: tool.definition.description,
        inputSchema: jsonSchema(tool.definition.input),
        execute: (input, { toolCallId, abortSignal }) =>
          withSpan(
            needs.traces ?? silentTraces,
            toolSpan(needs.traces ?? silentTraces, { toolName: tool.name, toolCallId }),
            () => runTool(needs, record, { tool, toolCallId, input, signal: abortSignal ?? needs.signal }),
          ),
      }),
    ]),
  );
}

async function runTool(
  needs: ModelLoopOptions,
  record: (events: SessionEvent[]) => Promise<void>,
  {
    tool,
    toolCallId,
    input: given,
    signal,
  }: { tool: Tool; toolCallId: string; input: unknown; signal: AbortSignal },
): Promise<unknown> {
  const { clock, log, workspace, toolTimeoutMs, hooks, sessionId, runId } = needs;
  const toolName = tool.name;
  const context = { sessionId, runId, signal };
  const { input } = await hooks.pipeline('tool.before', { toolName, toolCallId, input: given }, context);
  await record([{ type: 'tool.started', toolCallId, toolName, input }]);
  const startedMs = clock.monotonicMs();
  const took = () => Math.round(clock.monotonicMs() - startedMs);
  const fail = async (errorText: string): Promise<never> => {
    hooks.effect('tool.after', { toolName, toolCallId, input, ok: false, output: errorText }, context);
    await record([{ type: 'tool.failed', toolCallId, toolName, errorText, durationMs: took() }]);
    throw new ActionFailed(errorText);
  };
  try {
    await hooks.guard('tool.before', { toolName, toolCallId, input }, context);
  } catch (refusal) {
    const reason = refusal instanceof Problem ? refusal.message : 'A plugin refuses the call.';
    await record([{ type: 'tool.denied', toolCallId, toolName, approvalId: null, reason }]);
    throw new ActionFailed(reason);
  }
  let isApproved = false;
  // Input that does not fit is refused by the call itself; nobody is asked about it.
  if (tool.check(input).ok && tool.needsApproval(input)) {
    const verdict = await needs.approve({ tool, toolCallId, input });
    if (!verdict.isApproved) {
      await record([
        { type: 'tool.denied', toolCallId, toolName, approvalId: verdict.approvalId, reason: verdict.reason },
      ]);
      throw new ActionFailed(verdict.reason);
    }
    isApproved = true;
  }
  const resolved = await hooks.resolve('tool.before', { toolName, toolCallId, input }, context);
  const outcome =
    resolved === undefined
      ? await callAction({
          tool,
          input,
          workspace,
          sessionId,
          isApproved,
          signal,
          timeoutMs: toolTimeoutMs,
          clock,
          log,
        })
      : { ok: true as const, output: resolved };
  if (!outcome.ok) return fail(outcome.message);
  const { output } = await hooks.pipeline(
    'tool.after',
    { toolName, toolCallId, input, ok: true, output: outcome.output },
    context,
  );
  await record([{ type: 'tool.output', toolCallId, output, durationMs: took() }]);
  hooks.effect('tool.after', { toolName, toolCallId, input, ok: true, output }, context);
  return output;
}

const finishReasons: readonly string[] = ['stop', 'length', 'content-filter', 'tool-calls', 'error'];

// Whatever else a later version of the SDK may say is one of "other".
function finishReasonOf(step: StepEnd): FinishReason {
  return finishReasons.includes(step.finishReason) ? (step.finishReason as FinishReason) : 'other';
}

function counted({ inputTokens, outputTokens }: StepEnd['usage']): RunUsage {
  return { inputTokens: inputTokens ?? 0, outputTokens: outputTokens ?? 0 };
}

// `ai` prints a model's warnings as warnings of the process; they belong into our log.
function withoutConsole(model: LanguageModelV3, log: Log): LanguageModelV3 {
  return {
    specificationVersion: model.specificationVersion,
    provider: model.provider,
    modelId: model.modelId,
    supportedUrls: model.supportedUrls,
    doGenerate: (options) => model.doGenerate(options),
    async doStream(options) {
      const { stream, ...rest } = await model.doStream(options);
      const silent = stream.pipeThrough(
        new TransformStream<LanguageModelV3StreamPart, LanguageModelV3StreamPart>({
          transform(part, controller) {
            if (part.type === 'stream-start' && part.warnings.length > 0) {
              log.info({ model: model.modelId, warnings: part.warnings }, 'the model warns');
              controller.enqueue({ type: 'stream-start', warnings: [] });
            } else controller.enqueue(part);
          },
        }),
      );
      return { ...rest, stream: silent };
    },
  };
}
