// The handler of chat completions. Providers that support the format get the caller's bytes; for all
// others the call is translated.
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
} from '../../../contract/gateway/types.gen.ts';
import type { AiContext, AiHandlers } from '../calls/context.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { checkEffort } from '../catalog/reasoning.ts';
import { serializeChunks, serializeCompletion } from '../formats/chat-completions/answer.ts';
import { droppedMemberWarnings } from '../formats/chat-completions/dropped-members.ts';
import { parseResponseFormat, toModelCall } from '../formats/chat-completions/request.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { unpackChat } from '../formats/passthrough/replay.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { collectDroppedHints } from '../formats/translation/dropped-hints.ts';
import { checkAnswerFormat, checkChatInputs, checkLocalInput } from '../formats/translation/input-checks.ts';
import { checkReplays } from '../formats/translation/replay.ts';
import { checkToolValues } from '../formats/translation/tool-values.ts';
import { requirePrice } from '../metering/bound.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { checkChatTools } from '../upstream/tool-guard.ts';
import { answerInChunks, type ChunkedFormat } from './chunked-format.ts';

const chat: ChunkedFormat<ChatCompletionRequest, ChatCompletion, ChatCompletionChunk> = {
  passthrough: formats.chat,
  action: 'chat/completions',
  idPrefix: 'chatcmpl',
  checkModel(model, body) {
    requirePrice(model, ['input', 'output']);
    checkChatInputs(model, body.messages);
    checkLocalInput(model, body);
    if (!supportsChat(model)) checkAnswerFormat(model, parseResponseFormat(body), 'response_format');
  },
  effort: (model, body) => checkEffort(model, body.reasoning_effort),
  toContent({ body, rawBody, signal }, model, effort) {
    refuseUnsafeMembers(body, model.providerEntry, { limits: formats.chat.limitMembers });
    checkChatTools(model, body);
    if (!supportsChat(model)) {
      const hub = toModelCall(body, { provider: model.providerEntry, effort, signal });
      checkToolValues(hub);
      return { kind: 'hub', hub };
    }
    const hints = collectDroppedHints();
    return { kind: 'bytes', rawBody: unpackChat(body, rawBody, hints), warnings: hints.warnings };
  },
  droppedMemberWarnings,
  serializeAnswer: serializeCompletion,
  serializeChunks,
};

export function chatHandlers(context: AiContext): Pick<AiHandlers, 'ai.createChatCompletion'> {
  return {
    async 'ai.createChatCompletion'(call) {
      checkDefinitions(call.body);
      checkReplays(call.body);
      return answerInChunks(context, chat, call);
    },
  };
}

function supportsChat({ providerEntry }: CatalogModel): boolean {
  return providerEntry.formats.includes('chat');
}
