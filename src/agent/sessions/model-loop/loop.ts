// The loop of model calls and tool calls, on the `ai` package. Every step and every tool call is in the log before it
// happens, and its result before the model sees it.
import type { ModelMessage } from 'ai';
import { Problem } from '../../../kernel/problem.ts';
import type { LoopResult, LoopState, ModelLoopOptions, StepContext } from './loop-state.ts';
import { foldMessage } from './message.ts';
import { modelProblem } from './model-problem.ts';
import { takeStep } from './step.ts';

export type { FinishReason, LoopResult, ModelLoopOptions } from './loop-state.ts';
export type { ModelMessage };

export type RunModelLoop = (options: ModelLoopOptions) => Promise<LoopResult>;

/** Never throws. */
export async function runModelLoop(options: ModelLoopOptions): Promise<LoopResult> {
  const { hooks } = options;
  const state: LoopState = {
    messages: options.messages,
    message: foldMessage(),
    usage: { inputTokens: 0, outputTokens: 0 },
    finishReason: null,
    lastInputTokens: 0,
    failure: undefined,
  };
  const context = createStepContext(options, state);
  let outcome: 'finished' | 'step_limit' = 'finished';
  try {
    outcome = await runSteps(context);
  } catch (error) {
    state.failure ??= error;
  }
  state.message.close('The run ended during this call; whether it took effect is not known.');
  const problem = problemOf(context, outcome);
  const { hookContext } = context;
  if (problem === null) {
    const text = state.message.text();
    const answer = await hooks.pipeline('answer.before', { text }, hookContext);
    if (answer.text !== text) state.message.replaceText(answer.text);
    hooks.effect('answer.after', { text: state.message.text() }, hookContext);
  }
  const { message, usage, finishReason } = state;
  return { parts: message.parts(), text: message.text(), usage, finishReason, problem };
}

function createStepContext(options: ModelLoopOptions, state: LoopState): StepContext {
  const stop = new AbortController();
  const signal = AbortSignal.any([options.signal, stop.signal]);
  return {
    options,
    state,
    signal,
    hookContext: { sessionId: options.sessionId, runId: options.runId, signal },
    // The `ai` package drops what its callbacks throw, so a failed write has to end the loop from here.
    async record(events) {
      try {
        await options.writer.record(events);
      } catch (error) {
        state.failure ??= error;
        stop.abort();
        throw error;
      }
    },
  };
}

async function runSteps(context: StepContext): Promise<'finished' | 'step_limit'> {
  const { options, state, signal, hookContext } = context;
  const { hooks, maxSteps } = options;
  for (let step = 1; step <= maxSteps; step += 1) {
    await shortenMessages(context);
    await hooks.guard('step.before', { step }, hookContext);
    hooks.effect('step.before', { step }, hookContext);
    // The first step was recorded with the start of the run.
    if (step > 1) await context.record([{ type: 'run.step.started', step }]);
    const wantsMore = await takeStepWithRetries(context, step);
    if (state.failure !== undefined || signal.aborted) return 'finished';
    const steers = await options.steer(state.message.parts());
    if (steers.length > 0) {
      state.messages = [...state.messages, ...steers];
      state.message = foldMessage();
    } else if (!wantsMore) return 'finished';
  }
  return 'step_limit';
}

async function shortenMessages({ options, state }: StepContext): Promise<void> {
  const shorter = await options.shorten(state.messages, state.lastInputTokens);
  if (shorter === null) return;
  state.messages = shorter.messages;
  state.usage.inputTokens += shorter.usage.inputTokens;
  state.usage.outputTokens += shorter.usage.outputTokens;
}

/** Whether the model has called tools and waits for another step. Retries only a step that has produced nothing. */
async function takeStepWithRetries(context: StepContext, step: number): Promise<boolean> {
  const { options, state, signal } = context;
  for (let attempt = 1; ; attempt += 1) {
    const { wantsMore, hasOutput } = await takeStep(context, step);
    if (state.failure === undefined || hasOutput || signal.aborted || attempt > options.modelRetries)
      return wantsMore;
    const problem = modelProblem(state.failure);
    if (!isTransient(problem)) return wantsMore;
    state.failure = undefined;
    state.message.dropStep();
    const delayMs = 500 * 2 ** (attempt - 1);
    await context.record([{ type: 'run.retrying', step, attempt, delayMs, code: problem.code }]);
    await options.clock.sleep(delayMs, signal);
  }
}

function isTransient({ kind }: Problem): boolean {
  return (
    kind === 'unavailable' ||
    kind === 'rate_limited' ||
    kind === 'upstream_failed' ||
    kind === 'upstream_timeout'
  );
}

function problemOf({ options, state }: StepContext, outcome: 'finished' | 'step_limit'): Problem | null {
  // The reason of an abort comes first: later errors only follow from it.
  if (options.signal.aborted) {
    const reason: unknown = options.signal.reason;
    return reason instanceof Problem
      ? reason
      : new Problem('unavailable', 'run_interrupted', 'The run was ended.');
  }
  if (state.failure !== undefined) return modelProblem(state.failure);
  if (outcome === 'step_limit')
    return new Problem(
      'impossible',
      'step_limit_reached',
      `After ${options.maxSteps} steps the model still asks for tools.`,
    );
  if (state.finishReason === null || state.finishReason === 'error')
    return new Problem('upstream_failed', 'upstream_failed', 'The model ended its answer with an error.');
  return null;
}
