// The handler of the AI SDK's chats in a browser (`useChat`). A request is converted to the
// language-model format and handled as such; the answer is a UI message stream.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { UiChatRequest } from '../../../contract/gateway/types.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import { id } from '../../../kernel/ids.ts';
import type { Identity } from '../../identity.ts';
import { type AiContext, type AiHandlers, asEvents, callMembers, streamErrorBody } from '../calls/context.ts';
import { attemptHeaders } from '../calls/call.ts';
import { waitForFirst } from '../calls/first-item.ts';
import { serializeStream } from '../formats/language-model.ts';
import { collectDroppedHints, type DroppedHints } from '../formats/translation/dropped-hints.ts';
import { serializeChunks } from '../formats/ui/chunks.ts';
import { toStreamRequest } from '../formats/ui/request.ts';
import type { Warning } from '../hub/language-model.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { streamParts } from '../calls/model-calls.ts';
import { callInFormat, type StreamCall } from './stream.ts';
import { warningHeaders } from './warning-headers.ts';

type UiCall = Call<Operations['ai.streamUiMessage'], Identity>;

export function uiHandlers(context: AiContext): Pick<AiHandlers, 'ai.streamUiMessage'> {
  return { 'ai.streamUiMessage': (call) => streamMessage(context, call) };
}

async function streamMessage(
  context: AiContext,
  call: UiCall,
): Promise<Reply<Operations['ai.streamUiMessage']>> {
  const hints = collectDroppedHints();
  const streamCall = toStreamCall(call, hints);
  const toolNames = new Set(call.body.tools?.map(({ name }) => name));
  const messageId = messageIdOf(call.body);
  let warnings: readonly Warning[] = [];
  const result = await withMemberNames(uiMember, () =>
    callInFormat(context, streamCall, {
      action: 'ui',
      streams: true,
      send: async (attempt, { hub, bill }) => {
        const parts = await serializeStream(streamParts(context, attempt, { hub, bill }), {
          version: '4',
          modelId: attempt.model.id,
          responseId: messageId,
          now: context.clock.now(),
          renderError: (error) => streamErrorBody(context, streamCall, { error, attempt })?.error,
        });
        return waitForFirst(
          serializeChunks(parts, {
            messageId,
            modelId: attempt.model.id,
            toolNames,
            onWarnings: (modelWarnings) => (warnings = modelWarnings),
          }),
        );
      },
    }),
  );
  return {
    status: 200,
    events: asEvents(result.answer),
    end: '[DONE]',
    headers: {
      ...warningHeaders([...hints.warnings, ...warnings]),
      ...attemptHeaders(result),
      'x-vercel-ai-ui-message-stream': 'v1',
    },
  };
}

// One chat message can become several messages of the prompt, so an index of the prompt would mislead:
// only `messages` is named.
const uiMember: RenameMember = (member) => (/^prompt(?:$|\[)/.test(member) ? 'messages' : undefined);

function toStreamCall(call: UiCall, hints: DroppedHints): StreamCall {
  return { ...callMembers(call), body: toStreamRequest(call.body, hints), headers: {} };
}

/** An answer that follows tool outputs continues the message that contains the tool calls. */
function messageIdOf({ messages }: UiChatRequest): string {
  const lastMessage = messages.at(-1);
  return lastMessage?.role === 'assistant' && lastMessage.id !== undefined ? lastMessage.id : id('msg');
}
