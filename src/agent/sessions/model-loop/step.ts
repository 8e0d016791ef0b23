// One step of the loop: one call of the model, and the tool calls that it asks for.
import { streamText, type TextStreamPart, type ToolSet } from 'ai';
import type { LanguageModelV3, LanguageModelV3StreamPart } from '@ai-sdk/provider';
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import type { Log } from '../../../kernel/log.ts';
import type { FinishReason, LoopState, StepContext } from './loop-state.ts';
import { modelProblem } from './model-problem.ts';
import { endSpan, stepSpan } from './spans.ts';
import { ActionFailed, createToolSet } from './tools.ts';

interface StepEnd {
  finishReason: string;
  usage: { inputTokens: number | undefined; outputTokens: number | undefined };
}

interface Step {
  number: number;
  /** Whether anything of the answer has come; the step is not retried then. */
  hasOutput: boolean;
  toolCalls: number;
  toolResults: number;
  end: StepEnd | undefined;
}

/** Never throws: an error is left in `state.failure`. */
export async function takeStep(
  context: StepContext,
  number: number,
): Promise<{ wantsMore: boolean; hasOutput: boolean }> {
  const { options, state } = context;
  const { traces, model, sessionId } = options;
  const span = stepSpan(traces, { model: model.modelId, step: number, sessionId });
  const step: Step = { number, hasOutput: false, toolCalls: 0, toolResults: 0, end: undefined };
  try {
    await traces.within(span, () => streamStep(context, step));
    const hasAllResults = step.toolCalls > 0 && step.toolResults >= step.toolCalls;
    return { wantsMore: hasAllResults && state.failure === undefined, hasOutput: step.hasOutput };
  } catch (error) {
    // A truncated stream throws; other failures come as parts of the stream.
    state.failure ??= error;
    return { wantsMore: false, hasOutput: step.hasOutput };
  } finally {
    endSpan(span, {
      usage: step.end && usageOf(step.end),
      finishReason: step.end && finishReasonOf(step.end),
      reason: state.failure === undefined ? undefined : modelProblem(state.failure).code,
    });
  }
}

async function streamStep(context: StepContext, step: Step): Promise<void> {
  const { options, state, signal, hookContext } = context;
  const { writer, hooks } = options;
  const result = streamText({
    model: withWarningsLogged(options.model, options.log),
    instructions: options.system,
    messages: state.messages,
    tools: createToolSet(context),
    maxRetries: 0,
    headers: { traceparent: options.traces.traceparent() },
    abortSignal: signal,
    // Errors come as parts of the stream; without a handler the package also prints them.
    onError: () => {},
  });
  // Rejects when the step fails; the stream reports that failure as well.
  const responses = Promise.resolve(result.responseMessages).catch(() => []);
  state.message.startStep();
  for await (const part of result.stream) await handlePart(context, step, part);
  if (step.end) {
    const finishReason = finishReasonOf(step.end);
    state.finishReason = finishReason;
    writer.defer([{ type: 'run.step.ended', step: step.number, finishReason, usage: usageOf(step.end) }]);
    hooks.effect('step.after', { step: step.number, finishReason }, hookContext);
  }
  state.messages = [...state.messages, ...(await responses)];
}

async function handlePart(context: StepContext, step: Step, part: TextStreamPart<ToolSet>): Promise<void> {
  const { options, state } = context;
  const { message } = state;
  switch (part.type) {
    case 'text-delta':
    case 'reasoning-delta': {
      step.hasOutput = true;
      const type = part.type === 'text-delta' ? 'text' : 'reasoning';
      const blockId = `${step.number}:${part.id}`;
      message.addText(type, blockId, part.text);
      options.writer.addText(type, blockId, part.text);
      return;
    }
    case 'text-end':
    case 'reasoning-end':
      options.writer.endText(part.type === 'text-end' ? 'text' : 'reasoning', `${step.number}:${part.id}`);
      return;
    case 'source':
      step.hasOutput = true;
      if (part.sourceType === 'url') message.addSource(part);
      return;
    case 'tool-call':
      step.hasOutput = true;
      step.toolCalls += 1;
      message.startTool(part.toolCallId, part.toolName, part.input);
      return;
    case 'tool-result':
      step.toolResults += 1;
      message.endTool(part.toolCallId, { output: part.output });
      return;
    case 'tool-error':
      step.toolResults += 1;
      await failTool(context, part);
      return;
    case 'finish-step':
      step.end = part;
      addUsage(state, usageOf(part));
      return;
    case 'error':
      state.failure ??= part.error;
      return;
    default:
      // Starts of blocks, and types that no model of the gateway sends.
      return;
  }
}

async function failTool(
  { state, record }: StepContext,
  { toolCallId, toolName, error }: { toolCallId: string; toolName: string; error: unknown },
): Promise<void> {
  const errorText = error instanceof Error ? error.message : String(error);
  state.message.endTool(toolCallId, { errorText });
  // Our own tools record their failures. Here no tool has that name, or the input is not JSON.
  if (!(error instanceof ActionFailed))
    await record([{ type: 'tool.failed', toolCallId, toolName, errorText, durationMs: 0 }]);
}

function addUsage(state: LoopState, { inputTokens, outputTokens }: RunUsage): void {
  state.usage.inputTokens += inputTokens;
  state.usage.outputTokens += outputTokens;
  state.lastInputTokens = inputTokens + outputTokens;
}

function usageOf({ usage: { inputTokens, outputTokens } }: StepEnd): RunUsage {
  return { inputTokens: inputTokens ?? 0, outputTokens: outputTokens ?? 0 };
}

const finishReasons: readonly string[] = ['stop', 'length', 'content-filter', 'tool-calls', 'error'];

// Later versions of the SDK may add reasons.
function finishReasonOf({ finishReason }: StepEnd): FinishReason {
  return finishReasons.includes(finishReason) ? (finishReason as FinishReason) : 'other';
}

// The `ai` package prints a model's warnings to the console; they belong in the log.
function withWarningsLogged(model: LanguageModelV3, log: Log): LanguageModelV3 {
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
