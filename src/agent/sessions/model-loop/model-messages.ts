// A conversation in the form that the `ai` package takes: what was attached is shown before the words that came with it.
import { convertToModelMessages, type ModelMessage, type UIMessage } from 'ai';
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { AttachmentFiles } from '../attachments/files.ts';
import { renderFiles, type RenderedFile } from '../attachments/render.ts';
import type { AttachmentStore } from '../attachments/store.ts';
import type { Conversation } from '../event-log/conversation.ts';

export interface HistoryNeeds {
  attachments: AttachmentStore;
  files: AttachmentFiles;
}

/** As the model takes it. Throws a Problem when an attachment cannot be read any more. */
export async function toModelMessages(
  { summary, spoken }: Conversation,
  needs: HistoryNeeds,
): Promise<ModelMessage[]> {
  const messages: ModelMessage[] = [];
  if (summary !== null)
    messages.push({ role: 'user', content: `The conversation so far, in short:\n\n${summary}` });
  for (const { message } of spoken) {
    if (message.role === 'user') messages.push(await toUserMessage(message, needs));
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

async function toUserMessage(
  message: UiMessage,
  { attachments, files }: HistoryNeeds,
): Promise<ModelMessage> {
  const ids = message.parts.flatMap((part) =>
    part.type === 'data-attachment' ? [part.data.attachmentId] : [],
  );
  const known: Awaited<ReturnType<AttachmentStore['find']>> =
    ids.length === 0 ? new Map<string, never>() : await attachments.find(ids);
  const rendered: RenderedFile[] = [];
  for (const attachmentId of ids) {
    const record = known.get(attachmentId);
    const bytes = record && (await files.read(record.sessionKey, record.storedName).catch(() => undefined));
    if (!record || !bytes)
      throw new Problem(
        'internal',
        'internal_error',
        'An attachment of the conversation cannot be read any more.',
      );
    const isBase64 = record.encoding === 'base64';
    rendered.push({
      attachmentId,
      fileName: record.fileName,
      contentType: record.contentType,
      sizeBytes: record.sizeBytes,
      text: bytes.toString(isBase64 ? 'base64' : 'utf8'),
      isBase64,
    });
  }
  const nonce = id('non').slice(4);
  const text = message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  const whole = rendered.length === 0 ? text : `${await renderFiles(rendered, nonce)}\n\n${text}`;
  const media = message.parts.flatMap((part) =>
    part.type === 'file'
      ? [
          {
            type: 'file' as const,
            mediaType: part.mediaType,
            data: part.url,
            ...(part.filename === undefined ? {} : { filename: part.filename }),
          },
        ]
      : [],
  );
  return {
    role: 'user',
    content:
      media.length === 0
        ? whole
        : [...(whole === '' ? [] : [{ type: 'text' as const, text: whole }]), ...media],
  };
}
