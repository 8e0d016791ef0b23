// Converts a conversation for the `ai` package. Attachments come before the text of their input.
import { convertToModelMessages, type ModelMessage, type UIMessage } from 'ai';
import type { UiMessage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { AttachmentFiles } from '../attachments/files.ts';
import { renderFiles, type RenderedFile } from '../attachments/render.ts';
import type { AttachmentStore } from '../attachments/store.ts';
import type { Conversation } from '../event-log/conversation.ts';

interface AttachmentSource {
  attachments: AttachmentStore;
  files: AttachmentFiles;
}

/** Throws a Problem when an attachment cannot be read any more. */
export async function toModelMessages(
  { summary, messages: conversationMessages }: Conversation,
  source: AttachmentSource,
): Promise<ModelMessage[]> {
  const messages: ModelMessage[] = [];
  if (summary !== null)
    messages.push({ role: 'user', content: `The conversation so far, in short:\n\n${summary}` });
  for (const { message } of conversationMessages) {
    if (message.role === 'user') messages.push(await toUserMessage(message, source));
    else
      messages.push(
        ...(await convertToModelMessages([
          { ...message, parts: message.parts.filter((part) => !part.type.startsWith('data-')) } as Omit<
            UIMessage,
            'id'
          >,
        ])),
      );
  }
  return messages;
}

async function toUserMessage(message: UiMessage, source: AttachmentSource): Promise<ModelMessage> {
  const attachmentIds = message.parts.flatMap((part) =>
    part.type === 'data-attachment' ? [part.data.attachmentId] : [],
  );
  const files = await readFiles(attachmentIds, source);
  const nonce = id('non').slice(4);
  const text = message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  const fullText = files.length === 0 ? text : `${await renderFiles(files, nonce)}\n\n${text}`;
  const media = message.parts.flatMap((part) => (part.type === 'file' ? [toFilePart(part)] : []));
  if (media.length === 0) return { role: 'user', content: fullText };
  const textParts = fullText === '' ? [] : [{ type: 'text' as const, text: fullText }];
  return { role: 'user', content: [...textParts, ...media] };
}

function toFilePart({ mediaType, url, filename }: Extract<UiMessagePart, { type: 'file' }>) {
  return { type: 'file' as const, mediaType, data: url, ...(filename === undefined ? {} : { filename }) };
}

async function readFiles(
  attachmentIds: readonly string[],
  { attachments, files }: AttachmentSource,
): Promise<RenderedFile[]> {
  if (attachmentIds.length === 0) return [];
  const records = await attachments.find(attachmentIds);
  const rendered: RenderedFile[] = [];
  for (const attachmentId of attachmentIds) {
    const record = records.get(attachmentId);
    const bytes = record && (await files.read(record.sessionKey, record.storedName).catch(() => undefined));
    if (!record || !bytes)
      throw new Problem(
        'internal',
        'internal_error',
        'An attachment of the conversation cannot be read any more.',
      );
    const { fileName, contentType, sizeBytes } = record;
    const isBase64 = record.encoding === 'base64';
    const text = bytes.toString(isBase64 ? 'base64' : 'utf8');
    rendered.push({ attachmentId, fileName, contentType, sizeBytes, text, isBase64 });
  }
  return rendered;
}
