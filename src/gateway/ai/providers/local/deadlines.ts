// The deadlines of a model that runs in this process: `@delay` alone could keep a call of local/echo open for weeks.
import { Problem } from '../../../../kernel/problem.ts';
import type { LanguageModel, ModelCall } from '../../hub/language-model.ts';
import type { Timeouts } from '../../upstream/deadlines.ts';

/** The model, whose calls fail with `upstream_timeout` after the time that a provider would have. */
export function withDeadlines(
  model: LanguageModel,
  { answerMs, streamMs }: Pick<Timeouts, 'answerMs' | 'streamMs'>,
): LanguageModel {
  return {
    async generate(call) {
      const limited = limit(call, Math.min(answerMs, streamMs));
      try {
        return await model.generate(limited.call);
      } finally {
        limited.end();
      }
    },
    async *stream(call) {
      const limited = limit(call, streamMs);
      try {
        yield* model.stream(limited.call);
      } finally {
        limited.end();
      }
    },
  };
}

function limit(call: ModelCall, ms: number): { call: ModelCall; end(): void } {
  const late = new AbortController();
  const timer = setTimeout(
    () =>
      late.abort(
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
    call: { ...call, signal: AbortSignal.any([call.signal, late.signal]) },
    end: () => clearTimeout(timer),
  };
}
