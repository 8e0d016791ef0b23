// Sends one attempt of a translated call to a language model. The answer, whole or as a stream of
// parts, is counted for the bill.
import type { AiContext } from './context.ts';
import type { Bill } from '../billing/bill.ts';
import { countAnswer, followParts } from '../billing/model-answer.ts';
import type { ModelAttempt } from './call.ts';
import type { Answer, LanguageModel, ModelCall, StreamPart } from '../hub/language-model.ts';
import { streamRateOf } from '../upstream/stream-rate.ts';

/** The translated call, and its bill. */
export interface HubCall {
  hub: ModelCall;
  bill: Bill;
}

/** Generates a whole answer. */
export async function generate(
  context: Pick<AiContext, 'providers'>,
  attempt: ModelAttempt,
  call: HubCall,
): Promise<Answer> {
  const { languageModel, modelCall } = prepare(context, attempt, call);
  const answer = await languageModel.generate(modelCall);
  countAnswer(call.bill, answer);
  return answer;
}

/**
 * Streams the parts of an answer; the last part waits for the settlement. `call.hub.signal` must be the
 * caller's signal.
 */
export function streamParts(
  context: Pick<AiContext, 'providers' | 'clock'>,
  attempt: ModelAttempt,
  call: HubCall,
): AsyncIterable<StreamPart> {
  const { languageModel, modelCall } = prepare(context, attempt, call);
  const { bill, hub } = call;
  const rate = streamRateOf(attempt.model, bill, context.clock);
  return followParts(languageModel.stream(modelCall), { bill, signal: hub.signal, rate });
}

/** Builds the call of the language model, with the reserved output limit if the caller sent none. */
function prepare(
  { providers }: Pick<AiContext, 'providers'>,
  { model, effort, firstMs, backend }: ModelAttempt,
  { hub, bill }: HubCall,
): { languageModel: LanguageModel; modelCall: ModelCall } {
  const languageModel = providers.languageModel(model, {
    effort,
    firstMs,
    backend,
    approveOutputLimit: (tokens) => bill.approveOutputLimit(tokens),
    onAnswerComplete: () => bill.markComplete(),
  });
  return {
    languageModel,
    modelCall: {
      ...hub,
      reasoningEffort: effort,
      maxOutputTokens: hub.maxOutputTokens ?? bill.outputLimit,
      signal: bill.signal,
    },
  };
}
