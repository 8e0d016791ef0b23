// Deadlines for models that run in this process. Without them, `@delay` could keep a
// call of local/echo open for weeks.
import { Problem } from '../../../../kernel/problem.ts';
import type { LanguageModel, ModelCall } from '../../hub/language-model.ts';
import type { Timeouts } from '../../upstream/deadlines.ts';

/** Adds a provider's deadlines to the model: a call that exceeds them fails with `upstream_timeout`. */
export function withDeadlines(
  model: LanguageModel,
  { answerMs, streamMs }: Pick<Timeouts, 'answerMs' | 'streamMs'>,
): LanguageModel {
  return {
    async generate(call) {
      const limitedCall = limitCall(call, Math.min(answerMs, streamMs));
      try {
        return await model.generate(limitedCall.call);
      } finally {
        limitedCall.clearDeadline();
      }
    },
    async *stream(call) {
      const limitedCall = limitCall(call, streamMs);
      try {
        yield* model.stream(limitedCall.call);
      } finally {
        limitedCall.clearDeadline();
      }
    },
  };
}

/** The call with a deadline, which the caller must clear when the call has ended. */
function limitCall(call: ModelCall, ms: number): { call: ModelCall; clearDeadline(): void } {
  const deadline = new AbortController();
  const timer = setTimeout(
    () =>
      deadline.abort(
        new Problem(
          'upstream_timeout',
          'upstream_timeout',
          `The model did not finish its answer within ${ms} ms.`,
        ),
      ),
    ms,
  );
  timer.unref();
  return {
    call: { ...call, signal: AbortSignal.any([call.signal, deadline.signal]) },
    clearDeadline: () => clearTimeout(timer),
  };
}
