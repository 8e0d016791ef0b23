// Converts a request of the AI SDK's `useChat` to its language-model format. From there on it is handled as
// a request in that format: the same checks, the same size for its reservation, the same call of the hub.
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
