// Handlers of the formats that pass through to providers which speak them: embeddings, responses, messages and rerank.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { ResponseRequest } from '../../contract/gateway/types.gen.ts';
import type { Call } from '../../kernel/contract/operation.ts';
import { Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import { type AiContext, type AiHandlers, firstByteDeadlineMs, openBill } from './ai-context.ts';
import { attemptHeaders, callModel } from './call.ts';
import { viewerOf } from './catalog/catalog.ts';
import { checkEffort } from './catalog/reasoning.ts';
import { requireFormat } from './formats/passthrough/calls.ts';
import * as format from './formats/passthrough/formats.ts';
import { checkDefinitions } from './formats/tool-definitions.ts';
import { requirePrice } from './metering/bound.ts';
import {
  passthroughDemand,
  type PassthroughReply,
  passthroughReply,
  type PassthroughRequest,
  toPassthroughCall,
} from './passthrough-reply.ts';
import { refuseUnsafeMembers } from './upstream/request-guard.ts';
import { refusePricedTools } from './upstream/tool-guard.ts';

type PassthroughOperation =
  | 'ai.embedText'
  | 'ai.createResponse'
  | 'ai.createMessage'
  | 'ai.createMessageUnderVersion'
  | 'ai.rerankDocuments';

export function passthroughHandlers(context: AiContext): Pick<AiHandlers, PassthroughOperation> {
  const createMessage = async (call: MessageCall) => {
    refuseAccountHeaders(call.request.headers);
    return passThrough(context, call, {
      format: format.messages,
      effort: call.body.output_config?.effort,
      formatHeaders: messageHeaders(call.headers),
    });
  };
  return {
    'ai.embedText': (call) => passThrough(context, call, { format: format.embeddings }),

    'ai.createResponse': async (call) => {
      refuseBackground(call.body);
      return passThrough(context, call, { format: format.responses, effort: call.body.reasoning?.effort });
    },

    'ai.createMessage': createMessage,

    'ai.createMessageUnderVersion': createMessage,

    'ai.rerankDocuments': (call) => passThrough(context, call, { format: format.rerank }),
  };
}

type MessageCall = Call<Operations['ai.createMessage'], Identity>;

interface PassthroughSettings {
  format: format.PassthroughFormat;
  effort?: string | null | undefined;
  formatHeaders?: Record<string, string>;
}

/** Sends a call untranslated. Only models whose provider accepts its format can run it. */
async function passThrough(
  context: AiContext,
  call: PassthroughRequest,
  settings: PassthroughSettings,
): Promise<PassthroughReply> {
  const { catalog, passthrough } = context;
  const { body, identity, signal } = call;
  checkDefinitions(body);
  const { name, limitMembers } = settings.format;
  const [requested, ...fallbacks] = catalog.chain(viewerOf(identity), body.model);
  if (requested === undefined) throw new Error(`The chain of ${body.model} is empty.`);
  requireFormat(requested, settings.format);
  const demand = passthroughDemand(body, settings.format, requested);
  const bill = openBill(context, call, { action: name, demand });
  const result = await callModel(
    {
      chain: [requested, ...fallbacks.filter(({ providerEntry }) => providerEntry.formats.includes(name))],
      signal,
      deadlineMs: firstByteDeadlineMs(context, body.stream === true),
      check: (model) => requirePrice(model, ['input', 'output']),
      effort: (model) => checkEffort(model, settings.effort),
      content(model) {
        refuseUnsafeMembers(body, model.providerEntry, { limits: limitMembers });
        if (model.rates !== null) refusePricedTools(body);
      },
      send: (attempt) =>
        passthrough.send(
          settings.format,
          toPassthroughCall(context, call, { bill, formatHeaders: settings.formatHeaders }),
          attempt,
        ),
    },
    { ...context, bill },
  );
  const reply = await passthroughReply(settings.format, call, { result: result.answer, bill });
  return { ...reply, headers: { ...reply.headers, ...attemptHeaders(result) } };
}

// A background answer arrives outside of the call, so it could not be metered.
function refuseBackground({ background }: ResponseRequest): void {
  if (background !== true) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    'Answers in the background are not supported; leave background out.',
    { param: 'background' },
  );
}

// These headers select an account at the provider; the configured key determines it instead.
function refuseAccountHeaders(headers: Readonly<Record<string, unknown>>): void {
  const headerName = ['anthropic-workspace-id', 'anthropic-user-profile-id'].find(
    (name) => headers[name] !== undefined,
  );
  if (headerName === undefined) return;
  throw new Problem(
    'bad_request',
    'invalid_request',
    `The header ${headerName} is refused: accounts at providers are configured on the server.`,
    { param: headerName },
  );
}

function messageHeaders(headers: MessageCall['headers']): Record<string, string> {
  const beta = headers['anthropic-beta'];
  return {
    'anthropic-version': headers['anthropic-version'] ?? '2023-06-01',
    ...(beta === undefined ? {} : { 'anthropic-beta': beta }),
  };
}
