// Handlers of the formats without translation, for providers that support them: embeddings, rerank and
// moderations.
import { Problem } from '../../../kernel/problem.ts';
import { type AiContext, type AiHandlers, firstByteDeadlineMs, openBill } from '../calls/context.ts';
import { attemptHeaders, callModel } from '../calls/call.ts';
import { viewerOf } from '../catalog/catalog.ts';
import type { Bill } from '../billing/bill.ts';
import { type PassthroughResult, requireFormat } from '../formats/passthrough/calls.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { requirePrice } from '../metering/bound.ts';
import {
  passthroughDemand,
  type PassthroughReply,
  createPassthroughReply,
  type PassthroughRequest,
  toPassthroughCall,
  withPassthroughBody,
} from './passthrough-reply.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import { refusePricedTools } from '../upstream/tool-guard.ts';

export function passthroughHandlers(
  context: AiContext,
): Pick<AiHandlers, 'ai.embedText' | 'ai.rerankDocuments' | 'ai.moderateContent'> {
  return {
    'ai.embedText': (call) => passThrough(context, call, formats.embeddings),

    'ai.rerankDocuments': (call) => passThrough(context, call, formats.rerank),

    'ai.moderateContent': (call) => moderate(context, call),
  };
}

/** Calls the first moderation model if the request names no model. Throws a 404 if there is none. */
async function moderate(context: AiContext, call: ModerationCall): Promise<PassthroughReply> {
  const { body, identity, rawBody } = call;
  if (body.model !== undefined) {
    const request = withPassthroughBody(call, { ...body, model: body.model }, rawBody);
    return passThrough(context, request, formats.moderations);
  }
  const model = context.catalog
    .callableModels(viewerOf(identity), 'moderation')
    .find(({ providerEntry }) => providerEntry.formats.includes('moderations'));
  if (model === undefined)
    throw new Problem('not_found', 'model_not_found', 'The catalog has no moderation model.', {
      param: 'model',
    });
  const request = withPassthroughBody(call, { ...body, model: model.id });
  return passThrough(context, request, formats.moderations);
}

type ModerationCall = Parameters<AiHandlers['ai.moderateContent']>[0];

async function passThrough(
  context: AiContext,
  call: PassthroughRequest,
  format: formats.PassthroughFormat,
): Promise<PassthroughReply> {
  const { result, bill, headers } = await callPassthrough(context, call, format);
  return createPassthroughReply(format, call, { result, bill, headers });
}

/** The result of a call whose bill is not settled yet, and the headers that name the model. */
export interface PassthroughOutcome {
  result: PassthroughResult;
  bill: Bill;
  headers: Record<string, string>;
}

/** Sends a call untranslated. Only models whose provider accepts its format can run it. */
export async function callPassthrough(
  context: AiContext,
  call: PassthroughRequest,
  format: formats.PassthroughFormat,
): Promise<PassthroughOutcome> {
  const { catalog, passthrough } = context;
  const { body, identity, signal } = call;
  checkDefinitions(body);
  const { name, limitMembers } = format;
  const [requestedModel, ...fallbacks] = catalog.chain(viewerOf(identity), body.model);
  if (requestedModel === undefined) throw new Error(`The chain of ${body.model} is empty.`);
  requireFormat(requestedModel, format);
  const demand = passthroughDemand(body, format, requestedModel);
  const bill = openBill(context, call, { action: name, demand });
  const result = await callModel(
    {
      chain: [
        requestedModel,
        ...fallbacks.filter(({ providerEntry }) => providerEntry.formats.includes(name)),
      ],
      signal,
      // Only the caller's session id counts: these formats have no conversation whose start could be hashed.
      session: () => sessionHash({ headers: call.headers, body: {} }),
      deadlineMs: firstByteDeadlineMs(context, body.stream === true),
      check: (model) => requirePrice(model, ['input', 'output']),
      content(model) {
        refuseUnsafeMembers(body, model.providerEntry, { limits: limitMembers });
        if (model.rates !== null) refusePricedTools(body);
      },
      send: (attempt) => passthrough.send(format, toPassthroughCall(context, call, { bill }), attempt),
    },
    { ...context, bill },
  );
  return { result: result.answer, bill, headers: attemptHeaders(result) };
}
