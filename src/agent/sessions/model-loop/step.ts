// One step of the loop: one model call and the tool calls that it requests.
import type { LanguageModelV3CallOptions, LanguageModelV3StreamPart } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import type { FinishReason, StepContext } from './loop-state.ts';
import { modelProblem } from './model-problem.ts';
import { endSpan, stepSpan } from './spans.ts';
import { defineTools, runToolCall } from './tools.ts';
import { addUsage, readUsage } from './usage.ts';

interface Step {
  number: number;
  /**
   * Whether any output of the model has arrived; not set by pieces of a tool's input, which nothing keeps.
   */
  hasOutput: boolean;
  /** The names of the tools whose input the model is writing, by tool call id. */
  toolNames: Map<string, string>;
  /** The tool calls, which run concurrently with the stream. */
  calls: Promise<void>[];
  end: { finishReason: FinishReason; usage: RunUsage } | undefined;
}

/**
 * Never throws: an error is stored in `state.failure`. Resolves after all tool calls of the step have ended.
 */
export async function takeStep(
  run: StepContext,
  number: number,
): Promise<{ wantsMore: boolean; hasOutput: boolean }> {
  const { options, state } = run;
  const { traces, model, sessionId } = options;
  const span = stepSpan(traces, { model: model.modelId, step: number, sessionId });
  const step: Step = { number, hasOutput: false, toolNames: new Map(), calls: [], end: undefined };
  try {
    await traces.runInSpan(span, () => streamStep(run, step));
  } catch (error) {
    state.failure ??= error;
  }
  // A tool may have taken effect although the stream broke, so the model still has to get its result.
  await Promise.all(step.calls);
  options.writer.endAllTexts();
  options.toolDeltas.dropInputs();
  endSpan(span, {
    usage: step.end?.usage,
    finishReason: step.end?.finishReason,
    reason: state.failure === undefined ? undefined : modelProblem(state.failure).code,
  });
  return { wantsMore: step.calls.length > 0 && state.failure === undefined, hasOutput: step.hasOutput };
}

async function streamStep(run: StepContext, step: Step): Promise<void> {
  const { options, state, context } = run;
  const { stream } = await options.model.doStream(await callOptions(run));
  for await (const part of stream) handlePart(run, step, part);
  await Promise.all(step.calls);
  // Not reached without a `finish`: the client's stream throws `stream_truncated` then.
  if (!step.end) return;
  const { finishReason, usage } = step.end;
  state.finishReason = finishReason;
  addUsage(state.usage, usage);
  context.countTokens(usage.inputTokens + usage.outputTokens);
  options.writer.defer([{ type: 'run.step.ended', step: step.number, finishReason, usage }]);
  options.hooks.effect('step.after', { step: step.number, finishReason }, run.hookContext);
}

async function callOptions(run: StepContext): Promise<LanguageModelV3CallOptions> {
  const { options, state, context, signal } = run;
  const tools = await defineTools(run);
  return {
    prompt: [{ role: 'system', content: options.system }, ...context.prompt(state.message.parts())],
    ...(tools.length === 0 ? {} : { tools, toolChoice: { type: 'auto' } }),
    headers: { traceparent: options.traces.traceparent() },
    abortSignal: signal,
    ...context.callOptions(),
  };
}

function handlePart(run: StepContext, step: Step, part: LanguageModelV3StreamPart): void {
  const { options, state } = run;
  switch (part.type) {
    case 'stream-start':
      if (part.warnings.length > 0)
        options.log.info(
          { model: options.model.modelId, warnings: part.warnings },
          'a model call has warnings',
        );
      return;
    case 'text-start':
    case 'text-delta':
    case 'text-end':
    case 'reasoning-start':
    case 'reasoning-delta':
    case 'reasoning-end':
      return handleText(run, step, part);
    case 'source':
      step.hasOutput = true;
      if (part.sourceType === 'url') state.message.addSource(part);
      return;
    case 'tool-input-start':
      if (part.providerExecuted !== true) step.toolNames.set(part.id, part.toolName);
      return;
    case 'tool-input-delta':
      return addToolInput(run, step, part);
    case 'tool-call':
      step.hasOutput = true;
      options.toolDeltas.end('input', part.toolCallId);
      // A tool that the provider runs has its result in the stream.
      if (part.providerExecuted === true) return;
      step.calls.push(runToolCall(run, part));
      return;
    case 'finish':
      step.end = {
        finishReason: finishReasonOf(part.finishReason.unified),
        usage: readUsage(part.usage, part.providerMetadata),
      };
      return;
    case 'error':
      state.failure ??= part.error;
      return;
    default:
      // Part types that the gateway's models never send.
      return;
  }
}

function addToolInput(
  { options }: StepContext,
  { toolNames }: Step,
  { id: toolCallId, delta }: Extract<LanguageModelV3StreamPart, { type: 'tool-input-delta' }>,
): void {
  const toolName = toolNames.get(toolCallId);
  if (toolName !== undefined) options.toolDeltas.add('input', { toolCallId, toolName }, delta);
}

type TextPart = Extract<LanguageModelV3StreamPart, { type: `${'text' | 'reasoning'}-${string}` }>;

function handleText({ options, state }: StepContext, step: Step, part: TextPart): void {
  const { writer } = options;
  const type = part.type.startsWith('text') ? 'text' : 'reasoning';
  const blockId = `${step.number}:${part.id}`;
  if (part.type === 'text-delta' || part.type === 'reasoning-delta') {
    step.hasOutput = true;
    state.message.addText(type, blockId, part.delta);
    writer.addText(type, blockId, part.delta);
  }
  if (part.providerMetadata !== undefined) {
    state.message.addMetadata(type, blockId, part.providerMetadata);
    writer.addMetadata(type, blockId, part.providerMetadata);
  }
  if (part.type === 'text-end' || part.type === 'reasoning-end') writer.endText(type, blockId);
}

const finishReasons: readonly string[] = ['stop', 'length', 'content-filter', 'tool-calls', 'error'];

// Later versions of the AI SDK's interface may add reasons.
function finishReasonOf(finishReason: string): FinishReason {
  return finishReasons.includes(finishReason) ? (finishReason as FinishReason) : 'other';
}
