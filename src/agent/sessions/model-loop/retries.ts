// Repeats a step until it has an answer: a broken stream is continued, a prompt that
// is too long is shortened, and files that the model refuses are left out.
import type { Problem } from '../../../kernel/problem.ts';
import type { StepContext } from './loop-state.ts';
import { isContextOverflow, isRefusal, modelProblem, isUnsupportedInput } from './model-problem.ts';
import { takeStep } from './step.ts';

// An attempt may free as little as 2 % of the window, so the loop gives up after five.
const maxShortenings = 5;

/**
 * Returns whether the model has called tools and waits for another step. A final failure is stored in
 * `state.failure`.
 */
export async function takeStepWithRetries(run: StepContext, step: number): Promise<boolean> {
  const { state, context, signal } = run;
  const attempts: Attempts = { shortenings: 0, refusal: null };
  state.message.startStep();
  for (;;) {
    const { wantsMore, hasOutput } = await takeStep(run, step);
    if (state.failure === undefined && attempts.refusal !== null && isUnsupportedInput(attempts.refusal))
      context.learnNoFiles();
    if (state.failure === undefined || signal.aborted) return wantsMore;
    const error = state.failure;
    state.failure = undefined;
    if (!(await recover(run, { step, error, hasOutput, attempts }))) {
      state.failure ??= error;
      return wantsMore;
    }
    // `foldEvents` does the same for `run.retrying` and `run.waiting`. Without output this changes nothing.
    state.message.retryStep();
  }
}

interface Attempts {
  shortenings: number;
  /** The refusal after which the files were left out. */
  refusal: Problem | null;
}

interface FailedAttempt {
  step: number;
  error: unknown;
  hasOutput: boolean;
  attempts: Attempts;
}

async function recover(
  { state, context, modelRetry }: StepContext,
  { step, error, hasOutput, attempts }: FailedAttempt,
): Promise<boolean> {
  const problem = modelProblem(error);
  const parts = state.message.parts();
  // The refusal may be about the length or about the files. Shorten first, since the model still sees the
  // files of a shorter prompt. If the prompt stays too long, the failure is final: a repetition would fail
  // again.
  if (!hasOutput && isContextOverflow(problem) && attempts.shortenings < maxShortenings) {
    attempts.shortenings += 1;
    if (await context.shorten(parts, step)) return true;
  }
  if (!hasOutput && isRefusal(problem) && (await context.leaveOutFiles())) {
    attempts.refusal = problem;
    return true;
  }
  if (!hasOutput && isContextOverflow(problem)) {
    state.failure = context.overflowProblem(parts, problem);
    return false;
  }
  return modelRetry.recover(error, step);
}
