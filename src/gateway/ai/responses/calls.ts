// Shared by the handlers of the responses format: the format, its context, and the call with
// another body.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { ResponseAnswer, ResponseEvent, ResponseRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { Identity } from '../../identity.ts';
import { type AiContext, callMembers } from '../calls/context.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { checkEffort } from '../catalog/reasoning.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { unpackResponses } from '../formats/passthrough/replay.ts';
import { serializeResponse, serializeResponseEvents } from '../formats/responses/answer.ts';
import { toModelCall } from '../formats/responses/request.ts';
import type { BackgroundResponses, DetachedCall } from './background.ts';
import { planResponse, type ResponsePlan } from './plan.ts';
import type { ResponseRuns } from './runs/runs.ts';
import type { StoredResponses } from './stored/stored-responses.ts';
import type { TranslatedFormat } from '../handlers/translated-format.ts';

export type ResponseCall = Call<Operations['ai.createResponse'], Identity>;
export type ResponseReply = Reply<Operations['ai.createResponse']>;

export interface ResponsesContext extends AiContext {
  storedResponses: StoredResponses;
  runs: ResponseRuns;
  background: BackgroundResponses;
  /** How long a stream with an Idempotency-Key runs on without a reader. */
  rejoinMs: number;
}

export const responses: TranslatedFormat<ResponseRequest, ResponseAnswer, ResponseEvent> = {
  passthrough: formats.responses,
  effort: (model, body) => checkEffort(model, body.reasoning?.effort, 'reasoning.effort'),
  unpackReplay: unpackResponses,
  toModelCall,
  serializeAnswer: (answer, options) => serializeResponse(answer, { ...options, responseId: id('resp') }),
  serializeStream: (parts, options) => serializeResponseEvents(parts, { ...options, responseId: id('resp') }),
  // Clients of this format read the event's type, or its member `error`.
  errorEvent: ({ error }, count) => ({
    type: 'error',
    code: error.code,
    message: error.message,
    param: error.param,
    error,
    sequence_number: count,
  }),
};

export async function planOf(context: ResponsesContext, call: ResponseCall): Promise<ResponsePlan> {
  const [model] = context.catalog.chain(viewerOf(call.identity), call.body.model);
  if (model === undefined) throw new Error(`The chain of ${call.body.model} is empty.`);
  return planResponse(context.storedResponses, call, model);
}

/** The call with another body, and for a detached call with the signal of its run. */
export function withBody(
  call: ResponseCall,
  { body, rawBody }: Pick<ResponsePlan, 'body' | 'rawBody'>,
  { signal, remember }: DetachedCall = call,
) {
  const { headers, timing } = call;
  return { ...callMembers(call), headers, timing, signal, remember, body, rawBody };
}
