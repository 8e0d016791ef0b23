// How a prompt is sent: a chat's through its queue, any other session's as a prompt of that session.
import type { ChatSendReceipt, PromptReceipt } from '@townhall/agent';
import { ask } from './agent-client.ts';

export interface Attachment {
  type: 'document';
  fileName: string;
  contentType: string;
  content: string;
  encoding: 'base64';
}

export interface Prompt {
  text: string;
  attachments?: readonly Attachment[];
}

export interface Recipient {
  /** Absent for a chat that its first message creates. */
  sessionId?: string | undefined;
  chatId: string | null;
}

/** Resolves to the id of the session that accepted the prompt. `options` are further members of the operation. */
export async function sendPrompt(
  { sessionId, chatId }: Recipient,
  prompt: Prompt,
  options: { attended?: boolean; delivery?: string; id?: string } = {},
): Promise<string> {
  const { attended, delivery, id } = options;
  if (chatId !== null) {
    const receipt = await ask<ChatSendReceipt>('chat.sendMessage', {
      chatId,
      ...prompt,
      ...(attended === undefined ? {} : { attended }),
    });
    return receipt.sessionId;
  }
  const receipt = await ask<PromptReceipt>('sessions.prompt', {
    sessionId,
    ...prompt,
    ...(delivery === undefined ? {} : { delivery }),
    ...(id === undefined ? {} : { id }),
  });
  return receipt.sessionId;
}
