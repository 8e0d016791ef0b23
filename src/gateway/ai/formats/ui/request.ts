// Converts a request of the AI SDK's `useChat` to one of its language-model format and continues as
// that format does: the same checks, the same measure for its reservation, the same call of the hub.
import type { StreamRequest, UiChatRequest } from '../../../../contract/gateway/types.gen.ts';
import { invalidMember } from '../translation/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { toPrompt } from './prompt.ts';

/** Throws a 400 for a part of the wrong shape; parts that no model receives are added to the hints. */
export function toStreamRequest(body: UiChatRequest, hints: DroppedHints): StreamRequest {
  const {
    id: _id,
    trigger: _trigger,
    messageId: _messageId,
    messages: _messages,
    system: _system,
    ...settings
  } = body;
  const prompt = toPrompt(body, hints);
  if (prompt.length === 0) throw invalidMember('messages', 'has no text, file or output of a tool');
  return { ...settings, prompt };
}
