// The loop of model calls and tool calls. Every step and every tool call is in the
// log before it happens, and its result before the model sees it.
import { Problem } from '../../../kernel/problem.ts';
import type { LoopResult, LoopState, ModelLoopOptions, StepContext } from './loop-state.ts';
import { foldMessage } from './message.ts';
import { modelProblem } from './model-problem.ts';
import { createModelRetry } from './model-retry.ts';
import { takeStepWithRetries } from './retries.ts';
import { addUsage, noUsage } from './usage.ts';

export type { FinishReason, LoopResult, ModelLoopOptions } from './loop-state.ts';

export type RunModelLoop = (options: ModelLoopOptions) => Promise<LoopResult>;

/** Never throws. */
export async function runModelLoop(options: ModelLoopOptions): Promise<LoopResult> {
  const { hooks } = options;
  const state: LoopState = {
    message: foldMessage(),
    usage: { ...noUsage },
    finishReason: null,
    failure: undefined,
    hasReportedTools: false,
  };
  const base = createBase(options, state);
  let outcome: 'finished' | 'step_limit' = 'finished';
  try {
    outcome = await runSteps(await createStepContext(base));
  } catch (error) {
    state.failure ??= error;
  }
  state.message.close('The run ended during this call; whether it took effect is not known.');
  const problem = problemOf(options, state, outcome);
  if (problem === null) {
    const text = state.message.text();
    const answer = await hooks.pipeline('answer.before', { text }, base.hookContext);
    if (answer.text !== text) state.message.replaceText(answer.text);
    hooks.effect('answer.after', { text: state.message.text() }, base.hookContext);
  }
  const { message, usage, finishReason } = state;
  return { parts: message.parts(), text: message.text(), usage, finishReason, problem };
}

function createBase(options: ModelLoopOptions, state: LoopState): Omit<StepContext, 'context'> {
  const stop = new AbortController();
  const signal = AbortSignal.any([options.signal, stop.signal]);
  const { sessionId, runId, modelRetries, modelWaitMs, clock } = options;
  // Tool calls run concurrently with the model's stream, so a failed write has to stop both from here.
  const record: StepContext['record'] = async (events) => {
    try {
      return await options.writer.record(events);
    } catch (error) {
      state.failure ??= error;
      stop.abort();
      throw error;
    }
  };
  return {
    options,
    state,
    modelRetry: createModelRetry({ modelRetries, modelWaitMs, record, clock, signal }),
    signal,
    hookContext: { sessionId, runId, signal },
    record,
  };
}

async function createStepContext(base: Omit<StepContext, 'context'>): Promise<StepContext> {
  const { options, state, record, modelRetry, signal } = base;
  const context = await options.openContext({
    record,
    signal,
    addUsage: (usage) => addUsage(state.usage, usage),
    async recover(error, step) {
      if (!(await modelRetry.recover(error, step))) throw error;
    },
  });
  return { ...base, context };
}

async function runSteps(run: StepContext): Promise<'finished' | 'step_limit'> {
  const { options, state, context, signal, hookContext } = run;
  const { hooks, maxSteps } = options;
  for (let step = 1; step <= maxSteps; step += 1) {
    await context.fit(state.message.parts(), step);
    await hooks.guard('step.before', { step }, hookContext);
    hooks.effect('step.before', { step }, hookContext);
    // The first step was recorded with the start of the run.
    if (step > 1) await run.record([{ type: 'run.step.started', step }]);
    const wantsMore = await takeStepWithRetries(run, step);
    if (state.failure !== undefined || signal.aborted) return 'finished';
    if (await options.steer(state.message.parts())) {
      state.message = foldMessage();
      await context.reload();
    } else if (!wantsMore) return 'finished';
  }
  return 'step_limit';
}

function problemOf(
  options: ModelLoopOptions,
  state: LoopState,
  outcome: 'finished' | 'step_limit',
): Problem | null {
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
      `The model still requests tool calls after ${options.maxSteps} steps.`,
    );
  if (state.finishReason === null || state.finishReason === 'error')
    return new Problem('upstream_failed', 'upstream_failed', 'The model ended its answer with an error.');
  return null;
}
