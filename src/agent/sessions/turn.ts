// One turn: the model and the tools in a loop, on the `ai` package. It hides that package; what it keeps is that
// each step and each tool call is in the log before it happens and its result before the model sees it.
import { dynamicTool, isStepCount, jsonSchema, streamText, type ToolSet } from 'ai';
import type { LanguageModelV3, LanguageModelV3StreamPart } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../contract/agent/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { callAction, type PluginRegistry, type Tool } from '../plugins/index.ts';
import type { SessionEvent } from './events.ts';
import { foldMessage } from './message.ts';
import { modelProblem } from './model-problem.ts';

export type FinishReason = 'stop' | 'length' | 'content-filter' | 'tool-calls' | 'error' | 'other';

export interface TurnNeeds {
  model: LanguageModelV3;
  system: string;
  instructions: string;
  registry: PluginRegistry;
  workspace: string;
  maxSteps: number;
  toolTimeoutMs: number;
  /** How often a step that failed before its first byte is tried again. */
  modelRetries: number;
  /** Ends the turn; a Problem as its reason is what the turn fails with. */
  signal: AbortSignal;
  /** Resolves once the events are durable; throws when the run is not ours any more. */
  record(events: SessionEvent[]): Promise<void>;
  clock: Clock;
  log: Log;
}

/** What came of it, also of a turn that failed half-way. `events` are still to be written with the settlement. */
export interface Turn {
  parts: UiMessagePart[];
  text: string;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** Null when the turn ended well. */
  problem: Problem | null;
  events: SessionEvent[];
}

interface StepEnd {
  finishReason: string;
  usage: { inputTokens: number | undefined; outputTokens: number | undefined };
}

export type RunTurn = (needs: TurnNeeds) => Promise<Turn>;

/** Never throws. */
export async function runTurn(needs: TurnNeeds): Promise<Turn> {
  const { log } = needs;
  const fold = foldMessage();
  const usage: RunUsage = { inputTokens: 0, outputTokens: 0 };
  const stop = new AbortController();
  const signal = AbortSignal.any([needs.signal, stop.signal]);
  let failure: unknown;
  let startedSteps = 0;
  let endedSteps = 0;
  const steps: StepEnd[] = [];

  // `ai` swallows what its callbacks throw, so a log that cannot be written ends the turn from here.
  async function record(events: SessionEvent[]): Promise<void> {
    try {
      await needs.record(events);
    } catch (error) {
      failure ??= error;
      stop.abort();
      throw error;
    }
  }

  // The end of a step is written with the start of the next one: one commit a step.
  function stepEnds(steps: readonly StepEnd[]): SessionEvent[] {
    return steps.slice(endedSteps).map((step): SessionEvent => {
      endedSteps += 1;
      return { type: 'run.step.ended', step: endedSteps, finishReason: finishReasonOf(step), usage: counted(step.usage) };
    });
  }

  try {
    const result = streamText({
      model: withoutConsole(needs.model, log),
      instructions: needs.system,
      messages: [{ role: 'user', content: needs.instructions }],
      tools: toolSet(needs, record),
      stopWhen: isStepCount(needs.maxSteps),
      maxRetries: needs.modelRetries,
      abortSignal: signal,
      // Errors come through the stream; without this they would be printed as well.
      onError: () => {},
      onStepStart: async ({ steps: before }) => {
        startedSteps += 1;
        await record([...stepEnds(before), { type: 'run.step.started', step: startedSteps }]);
      },
    });
    for await (const part of result.stream) {
      switch (part.type) {
        case 'start-step':
          fold.startStep();
          break;
        case 'text-delta':
        case 'reasoning-delta':
          fold.addText(part.type === 'text-delta' ? 'text' : 'reasoning', part.id, part.text);
          break;
        case 'source':
          if (part.sourceType === 'url') fold.addSource(part);
          break;
        case 'tool-call':
          fold.startTool(part.toolCallId, part.toolName, part.input);
          break;
        case 'tool-result':
          fold.endTool(part.toolCallId, { output: part.output });
          break;
        case 'tool-error': {
          const errorText = part.error instanceof Error ? part.error.message : String(part.error);
          fold.endTool(part.toolCallId, { errorText });
          // A call that never reached a tool of ours: there is none of that name, or its input is no JSON.
          if (!(part.error instanceof ActionFailed)) {
            await record([{ type: 'tool.failed', toolCallId: part.toolCallId, toolName: part.toolName, errorText, durationMs: 0 }]);
          }
          break;
        }
        case 'finish-step': {
          steps.push(part);
          const { inputTokens, outputTokens } = counted(part.usage);
          usage.inputTokens += inputTokens;
          usage.outputTokens += outputTokens;
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
  } catch (error) {
    failure ??= error;
  }

  const lastStep = steps.at(-1);
  const finishReason = lastStep ? finishReasonOf(lastStep) : null;
  const problem = turnProblem();
  fold.close('The run ended during this call; whether it took effect is not known.');
  return {
    parts: fold.parts(),
    text: fold.text(),
    usage,
    finishReason,
    problem,
    events: stepEnds(steps),
  };

  function turnProblem(): Problem | null {
    // Whoever ended the turn knows better why than the errors that followed.
    if (needs.signal.aborted) {
      const reason: unknown = needs.signal.reason;
      return reason instanceof Problem ? reason : new Problem('unavailable', 'run_interrupted', 'The run was ended.');
    }
    if (failure !== undefined) return modelProblem(failure);
    if (finishReason === null || finishReason === 'error') {
      return new Problem('upstream_failed', 'upstream_failed', 'The model ended its answer with an error.');
    }
    if (finishReason === 'tool-calls' && startedSteps >= needs.maxSteps) {
      return new Problem('impossible', 'step_limit_reached', `After ${needs.maxSteps} steps the model still asks for tools.`);
    }
    return null;
  }
}

/** Carries the reason of a failed action to the model, which is shown the error as text; its class says that it was ours. */
class ActionFailed extends Error {
  override toString(): string {
    return this.message;
  }
}

function toolSet(needs: TurnNeeds, record: (events: SessionEvent[]) => Promise<void>): ToolSet {
  return Object.fromEntries(
    needs.registry.tools.map((tool) => [
      tool.name,
      dynamicTool({
        description: tool.definition.description,
        inputSchema: jsonSchema(tool.definition.input),
        execute: (input, { toolCallId, abortSignal }) =>
          runTool(needs, record, { tool, toolCallId, input, signal: abortSignal ?? needs.signal }),
      }),
    ]),
  );
}

async function runTool(
  { clock, log, workspace, toolTimeoutMs }: TurnNeeds,
  record: (events: SessionEvent[]) => Promise<void>,
  { tool, toolCallId, input, signal }: { tool: Tool; toolCallId: string; input: unknown; signal: AbortSignal },
): Promise<unknown> {
  const toolName = tool.name;
  await record([{ type: 'tool.started', toolCallId, toolName, input }]);
  const startedMs = clock.monotonicMs();
  const outcome = await callAction({ tool, input, workspace, signal, timeoutMs: toolTimeoutMs, clock, log });
  const durationMs = Math.round(clock.monotonicMs() - startedMs);
  if (!outcome.ok) {
    await record([{ type: 'tool.failed', toolCallId, toolName, errorText: outcome.message, durationMs }]);
    throw new ActionFailed(outcome.message);
  }
  await record([{ type: 'tool.output', toolCallId, output: outcome.output, durationMs }]);
  return outcome.output;
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
