// Renders an input for a model: attached files before its text, pictures and other media after it. A file
// that the model does not accept becomes a note, so no file makes a session unusable.
import { createHash } from 'node:crypto';
import type { LanguageModelV3Message } from '@ai-sdk/provider';
import type { UiMessage, UiMessagePart } from '../../../../contract/agent/types.gen.ts';
import type { AttachmentFiles } from '../../attachments/files.ts';
import { renderFiles, type RenderedFile } from '../../attachments/render.ts';
import type { AttachmentStore } from '../../attachments/store.ts';
import { asText } from '../../event-log/events.ts';
import { clipText, shareTokens } from './clip.ts';
import { estimateText } from './estimate.ts';
import { fileKind, pictureSize, type FileKind } from './media-tokens.ts';
import { startOfText } from '../../../../kernel/start-of-text.ts';

export interface AttachmentSource {
  attachments: AttachmentStore;
  files: AttachmentFiles;
}

export interface InputView {
  /** Whether the model accepts files of this kind. */
  accepts(kind: FileKind): boolean;
  /** Tokens allowed for the texts of one input together. */
  maxTextTokens: number;
}

/** A part of an input that is not sent to the model. */
export interface Omission {
  code: 'input_left_out' | 'input_clipped';
  message: string;
}

type FilePart = Extract<UiMessagePart, { type: 'file' }>;
type UserContent = Extract<LanguageModelV3Message, { role: 'user' }>['content'];

interface Medium {
  mediaType: string;
  /** Base64. */
  data: string;
  filename: string | undefined;
}

/** The parts of an input before any of them is clipped or left out. */
interface InputContent {
  files: RenderedFile[];
  text: string;
  media: Medium[];
  omissions: Omission[];
}

export async function renderInput(
  message: UiMessage,
  view: InputView,
  source: AttachmentSource,
): Promise<{ message: LanguageModelV3Message; omissions: Omission[] }> {
  const input = await readInput(message, source);
  const notes = input.media.filter(({ mediaType }) => !view.accepts(fileKind(mediaType))).map(describeMedium);
  const media = input.media.filter(({ mediaType }) => view.accepts(fileKind(mediaType)));
  const { files, text, omissions } = clipInput(input, view.maxTextTokens);
  const nonce = nonceOf(files);
  const texts = [
    files.length === 0 ? '' : await renderFiles(files, nonce),
    ...notes.map((note) => `[${note} was left out here, because this model does not accept it.]`),
    text,
  ].filter((piece) => piece.trim() !== '');
  // Providers refuse a message without any content, and would then refuse every later request of the session.
  if (texts.length === 0 && media.length === 0) texts.push('[The input has no text.]');
  const content: UserContent = [
    ...(texts.length === 0 ? [] : [{ type: 'text' as const, text: texts.join('\n\n') }]),
    ...media.map(({ mediaType, data, filename }) => ({
      type: 'file' as const,
      mediaType,
      data,
      ...(filename === undefined ? {} : { filename }),
    })),
  ];
  return {
    message: { role: 'user', content },
    omissions: [
      ...omissions,
      ...notes.map((note): Omission => ({
        code: 'input_left_out',
        message: `${note} was left out, because the model does not accept it.`,
      })),
    ],
  };
}

/**
 * Derived from the ids, so that the same files have the same nonce in every prompt, as prompt caches require.
 * No attachment can contain its nonce, because its id is random and was generated after the content. The id
 * of a file part comes from its message, which a caller may name; it is the caller's own file.
 */
function nonceOf(files: readonly RenderedFile[]): string {
  const ids = files.map(({ attachmentId }) => attachmentId).join(' ');
  return createHash('sha256').update(ids).digest('hex').slice(0, 26);
}

async function readInput(message: UiMessage, source: AttachmentSource): Promise<InputContent> {
  const input: InputContent = { files: [], text: '', media: [], omissions: [] };
  const texts: string[] = [];
  await addAttachments(input, message, source);
  for (const [index, part] of message.parts.entries()) {
    if (part.type === 'text') texts.push(asText(part.text));
    if (part.type === 'file') addFilePart(input, part, `${message.id}-${index}`);
  }
  input.text = texts.join('\n');
  return input;
}

async function addAttachments(
  input: InputContent,
  { parts }: UiMessage,
  { attachments, files }: AttachmentSource,
): Promise<void> {
  const ids = parts.flatMap((part) => (part.type === 'data-attachment' ? [part.data.attachmentId] : []));
  if (ids.length === 0) return;
  const records = await attachments.find(ids);
  for (const attachmentId of ids) {
    const record = records.get(attachmentId);
    const bytes = record && (await files.read(record.sessionKey, record.storedName).catch(() => undefined));
    if (!record || !bytes) {
      const message = `The attachment ${record?.fileName ?? attachmentId} cannot be read any more.`;
      input.omissions.push({ code: 'input_left_out', message });
      input.files.push(placeholderFile(attachmentId, record?.fileName ?? '', message));
      continue;
    }
    addAttachment(input, record, bytes);
  }
}

function addAttachment(
  input: InputContent,
  record: {
    attachmentId: string;
    fileName: string;
    contentType: string;
    sizeBytes: number;
    encoding: string;
  },
  bytes: Buffer,
): void {
  const { attachmentId, fileName, contentType, sizeBytes } = record;
  const isBase64 = record.encoding === 'base64';
  const text = asText(bytes.toString(isBase64 ? 'base64' : 'utf8'));
  const isMedium = isBase64 && /^(?:image|audio|video)\/|^application\/pdf\b/.test(contentType);
  if (isMedium) {
    const mediaType = contentType.split(';')[0] as string;
    input.media.push({ mediaType, data: text, filename: asText(fileName) });
  }
  input.files.push({
    attachmentId,
    fileName,
    contentType,
    sizeBytes,
    text: isMedium ? 'The content follows after the text.' : text,
    isBase64: isBase64 && !isMedium,
  });
}

function placeholderFile(attachmentId: string, fileName: string, text: string): RenderedFile {
  return { attachmentId, fileName, contentType: 'text/plain', sizeBytes: 0, text, isBase64: false };
}

/** Text files become elements as attachments do: few models take them as files. */
function addFilePart(input: InputContent, { mediaType, url, filename }: FilePart, fileId: string): void {
  const data = url.slice(url.indexOf(',') + 1);
  const isText = /^text\/|^application\/(?:json|xml|yaml)\b/.test(mediaType);
  if (!isText) {
    input.media.push({ mediaType, data, filename });
    return;
  }
  const bytes = Buffer.from(data, 'base64');
  input.files.push({
    attachmentId: fileId,
    fileName: filename ?? '',
    contentType: mediaType,
    sizeBytes: bytes.length,
    text: asText(bytes.toString('utf8')),
    isBase64: false,
  });
}

function clipInput(
  { files, text, omissions }: InputContent,
  maxTokens: number,
): { files: RenderedFile[]; text: string; omissions: Omission[] } {
  const sizes = [text, ...files.map((file) => file.text)].map(estimateText);
  const limit = shareTokens(sizes, maxTokens);
  if (limit === Number.POSITIVE_INFINITY) return { files, text, omissions };
  const clippedText = clipText(text, limit);
  let omittedCount = clippedText.omittedCount;
  const clippedFiles = files.map((file) => {
    const clippedFile = clipText(file.text, limit);
    omittedCount += clippedFile.omittedCount;
    return { ...file, text: clippedFile.text };
  });
  const message = `${omittedCount} characters of an input were left out, because the context of the model is too short for them.`;
  return {
    files: clippedFiles,
    text: clippedText.text,
    omissions: [...omissions, { code: 'input_clipped', message }],
  };
}

function describeMedium({ mediaType, data, filename }: Medium): string {
  const size = fileKind(mediaType) === 'image' ? pictureSize(data) : undefined;
  const details = [mediaType, ...(size === undefined ? [] : [`${size.width}×${size.height} pixels`])];
  const name = filename === undefined || filename === '' ? '' : ` "${asText(startOfText(filename, 255))}"`;
  return `A file${name} (${details.join(', ')})`;
}
