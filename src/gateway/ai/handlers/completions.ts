// The handler of OpenAI's older completions format. Providers that support it get the caller's bytes; for
// all others the call is translated.
import type { Completion } from '../../../contract/gateway/types.gen.ts';
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { Identity } from '../../identity.ts';
import {
  type AiContext,
  type AiHandlers,
  asEvents,
  creditsHeader,
  firstByteDeadlineMs,
  openBill,
  settleAndRender,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import { attemptHeaders, callModel, type ModelAttempt, type ModelResult } from '../calls/call.ts';
import { type CatalogModel, viewerOf } from '../catalog/catalog.ts';
import { waitForFirst } from '../calls/first-item.ts';
import { serializeChunks, serializeCompletion } from '../formats/completions/answer.ts';
import { droppedMemberWarnings, refuseEcho, toModelCall } from '../formats/completions/request.ts';
import type { PassthroughResult } from '../formats/passthrough/calls.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { checkLocalInput } from '../formats/translation/input-checks.ts';
import type { Answer, ModelCall, Warning } from '../hub/language-model.ts';
import { requirePrice } from '../metering/bound.ts';
import { generate, streamParts } from '../calls/model-calls.ts';
import { passthroughDemand, createPassthroughReply, toPassthroughCall } from './passthrough-reply.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { sessionHash } from '../upstream/session-hash.ts';
import { refusePricedTools } from '../upstream/tool-guard.ts';
import { warningHeaders } from './warning-headers.ts';

const format = formats.completions;

type CompletionCall = Call<Operations['ai.createCompletion'], Identity>;
type CompletionReply = Reply<Operations['ai.createCompletion']>;

/** The translated call; undefined for a provider that gets the caller's bytes. */
type Content = ModelCall | undefined;

type Result =
  | PassthroughResult
  | { kind: 'answer'; answer: Answer }
  | { kind: 'chunks'; chunks: AsyncIterable<Completion>; warnings: readonly Warning[] };

export function completionHandlers(context: AiContext): Pick<AiHandlers, 'ai.createCompletion'> {
  return {
    'ai.createCompletion': async (call): Promise<CompletionReply> => {
      const { identity, body, signal } = call;
      checkDefinitions(body);
      refuseEcho(body);
      const chain = context.catalog.chain(viewerOf(identity), body.model, 'openai');
      const demand = passthroughDemand(body, format, chain[0]);
      const bill = openBill(context, call, { action: 'completions', demand });
      const result = await callModel(
        {
          chain,
          signal,
          streams: body.stream === true,
          session: () => sessionHash(call),
          deadlineMs: firstByteDeadlineMs(context, body.stream === true),
          check(model) {
            requirePrice(model, ['input', 'output']);
            checkLocalInput(model, body);
          },
          content: (model) => toContent(call, model),
          send: (attempt) => send(context, call, { attempt, bill }),
        },
        { ...context, bill },
      );
      return render(context, call, { result, bill });
    },
  };
}

/** Throws a 400 or 422 for members that must not reach the provider, or that the model does not support. */
function toContent({ body, signal }: CompletionCall, model: CatalogModel): Content {
  refuseUnsafeMembers(body, model.providerEntry, { limits: format.limitMembers });
  if (model.rates !== null) refusePricedTools(body);
  return model.providerEntry.formats.includes(format.name) ? undefined : toModelCall(body, { signal });
}

async function send(
  context: AiContext,
  call: CompletionCall,
  { attempt, bill }: { attempt: ModelAttempt<Content>; bill: Bill },
): Promise<Result> {
  const { body } = call;
  const { model, content: hub } = attempt;
  if (hub === undefined)
    return context.passthrough.send(format, toPassthroughCall(context, call, { bill }), attempt);
  if (body.stream !== true)
    return { kind: 'answer', answer: await generate(context, attempt, { hub, bill }) };
  let warnings: readonly Warning[] = [];
  const chunks = await waitForFirst(
    serializeChunks(streamParts(context, attempt, { hub, bill }), {
      ...serializeOptions(context, model),
      includeUsage: body.stream_options?.include_usage === true,
      onWarnings: (streamWarnings) => (warnings = streamWarnings),
    }),
  );
  return { kind: 'chunks', chunks, warnings };
}

async function render(
  context: AiContext,
  call: CompletionCall,
  { result: modelResult, bill }: { result: ModelResult<Result>; bill: Bill },
): Promise<CompletionReply> {
  const { answer: result, model } = modelResult;
  const attempts = attemptHeaders(modelResult);
  if (result.kind === 'whole' || result.kind === 'stream')
    return createPassthroughReply(format, call, { result, bill, headers: attempts });
  const memberWarnings = droppedMemberWarnings(call.body);
  if (result.kind === 'chunks')
    return {
      status: 200,
      events: asEvents(result.chunks, (error) => context.health.recordStreamFailure(modelResult, error)),
      end: '[DONE]',
      headers: { ...warningHeaders([...memberWarnings, ...result.warnings]), ...attempts },
    };
  const { answer } = result;
  const options = serializeOptions(context, model);
  const warnings = warningHeaders([...memberWarnings, ...answer.warnings]);
  const rendered = await settleAndRender<Completion>(call, bill, (credits) => ({
    body: serializeCompletion(answer, options),
    headers: { ...warnings, ...attempts, ...creditsHeader(credits) },
  }));
  return { status: 200, ...rendered };
}

function serializeOptions({ clock }: AiContext, model: CatalogModel) {
  return {
    modelId: model.id,
    completionId: id('cmpl').replace('_', '-'),
    createdSeconds: Math.floor(clock.now().getTime() / 1000),
  };
}
