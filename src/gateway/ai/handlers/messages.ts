// Handlers of Anthropic's messages format.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { MessageAnswer, MessageEvent, MessageRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Identity } from '../../identity.ts';
import type { AiContext, AiHandlers } from '../calls/context.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { serializeMessage, serializeMessageEvents } from '../formats/messages/answer.ts';
import { messageEffort, withEffort } from '../formats/messages/effort.ts';
import { toModelCall } from '../formats/messages/request.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { unpackMessages } from '../formats/passthrough/replay.ts';
import { sizeOf } from '../metering/measure.ts';
import { tokensOfRequest } from '../metering/token-count.ts';
import { answerTranslated, type TranslatedFormat } from './translated-format.ts';

type MessageCall = Call<Operations['ai.createMessage'], Identity>;
type TokensOperation = Operations['ai.getMessageTokens'];
type TokensCall = Call<TokensOperation, Identity>;

const messages: TranslatedFormat<MessageRequest, MessageAnswer, MessageEvent> = {
  passthrough: formats.messages,
  effort: messageEffort,
  unpackReplay: unpackMessages,
  withEffort,
  toModelCall,
  serializeAnswer: (answer, { modelId }) => serializeMessage(answer, { modelId, messageId: id('msg') }),
  serializeStream: (parts, { modelId, onWarnings }) =>
    serializeMessageEvents(parts, { modelId, messageId: id('msg'), onWarnings }),
  errorEvent: ({ error }) => ({ type: 'error', error }),
};

export function messageHandlers(
  context: AiContext,
): Pick<AiHandlers, 'ai.createMessage' | 'ai.getMessageTokens'> {
  return {
    'ai.createMessage': async (call: MessageCall) => {
      refuseAccountHeaders(call.request.headers);
      return answerTranslated(context, messages, { call, formatHeaders: messageHeaders(call.headers) });
    },
    'ai.getMessageTokens': async (call: TokensCall) => estimateTokens(context, call),
  };
}

/**
 * The gateway's own estimate, as for an answer whose provider reports no usage. Throws a 404 for a model
 * that cannot be called.
 */
function estimateTokens({ catalog }: AiContext, { identity, body }: TokensCall): Reply<TokensOperation> {
  catalog.callableModel(viewerOf(identity), body.model);
  return { status: 200, body: { input_tokens: tokensOfRequest(sizeOf(body, 'messages')) } };
}

// These headers select an account at the provider; the configured key determines the account instead.
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
