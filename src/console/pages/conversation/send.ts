// Sends a prompt: to a chat through its queue, to any other session directly.
import type { ChatSendReceipt, PromptReceipt } from '@townhall/agent';
import { callConsole } from '../shared/console-client.ts';

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

/**
 * Resolves to the id of the session that accepted the prompt. `options` are further members of the
 * operation.
 */
export async function sendPrompt(
  { sessionId, chatId }: Recipient,
  prompt: Prompt,
  options: { attended?: boolean; delivery?: string; id?: string } = {},
): Promise<string> {
  if (chatId !== null) {
    const receipt = await callConsole<ChatSendReceipt>('chat.sendMessage', {
      chatId,
      ...prompt,
      ...(options.attended === undefined ? {} : { attended: options.attended }),
    });
    return receipt.sessionId;
  }
  const receipt = await callConsole<PromptReceipt>('sessions.prompt', {
    sessionId,
    ...prompt,
    ...(options.delivery === undefined ? {} : { delivery: options.delivery }),
    ...(options.id === undefined ? {} : { id: options.id }),
  });
  return receipt.sessionId;
}

/** The file in base64. */
export async function readAttachment(file: File): Promise<Attachment> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  // In chunks, since the number of arguments of a call is limited.
  for (let index = 0; index < bytes.length; index += 8_192)
    text += String.fromCharCode(...bytes.subarray(index, index + 8_192));
  return {
    type: 'document',
    fileName: file.name,
    contentType: file.type === '' ? 'application/octet-stream' : file.type,
    content: btoa(text),
    encoding: 'base64',
  };
}
