// Converts the messages of a chat, as the AI SDK keeps them in a browser, to a prompt in its
// language-model format. A message of the assistant can have several steps; each becomes an assistant
// message and, if tools have answered, a tool message.
import type {
  UiChatCustomPart,
  UiChatFilePart,
  UiChatMessage,
  UiChatPart,
  UiChatRequest,
  UiChatSteeringPart,
  UiChatTextPart,
} from '../../../../contract/gateway/types.gen.ts';
import { parseDataUrl } from '../../media/data-url.ts';
import { invalidMember } from '../translation/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { isRemoteFile } from '../translation/file-address.ts';
import { isToolPart, toToolParts } from './tool-parts.ts';
import type {
  SpecMessage,
  SpecUserPart,
  SpecAssistantPart,
  SpecToolPart,
} from '../translation/spec-prompt.ts';

type FilePart = Extract<SpecUserPart, { type: 'file' | 'reasoning-file' }>;

/** Throws a 400 that names the part if a part has the wrong shape. */
export function toPrompt({ system, messages }: UiChatRequest, hints: DroppedHints): SpecMessage[] {
  return [
    ...(system === undefined || system === '' ? [] : [{ role: 'system' as const, content: system }]),
    ...messages.flatMap((message, index) => toMessages(message, `messages[${index}]`, hints)),
  ];
}

function toMessages({ role, parts }: UiChatMessage, path: string, hints: DroppedHints): SpecMessage[] {
  if (role === 'assistant') return toAssistantMessages(parts, path, hints);
  if (role === 'user') return toUserMessages(parts, path);
  const texts = parts.filter(isTextPart);
  const content = texts.map(({ text }) => text).join('');
  return content === '' ? [] : [{ role: 'system', content, ...toOptions(texts.at(-1)?.providerMetadata) }];
}

function toUserMessages(parts: readonly UiChatPart[], path: string): SpecMessage[] {
  const content = parts.flatMap((part, index): SpecUserPart[] => {
    if (isTextPart(part) && part.type === 'text') return toText(part, 'text');
    if (isFilePart(part) && part.type === 'file') return [toFile(part, `${path}.parts[${index}]`)];
    if (isTextPart(part) || isFilePart(part) || isToolPart(part))
      throw invalidMember(`${path}.parts[${index}].type`, 'must be text or file in a message of the user');
    return [];
  });
  return content.length === 0 ? [] : [{ role: 'user', content }];
}

function toAssistantMessages(parts: readonly UiChatPart[], path: string, hints: DroppedHints): SpecMessage[] {
  const messages: SpecMessage[] = [];
  let content: SpecAssistantPart[] = [];
  let results: SpecToolPart[] = [];
  const endStep = () => {
    if (content.length > 0) messages.push({ role: 'assistant', content });
    if (results.length > 0) messages.push({ role: 'tool', content: results });
    content = [];
    results = [];
  };
  for (const [index, part] of parts.entries()) {
    const partPath = `${path}.parts[${index}]`;
    if (part.type === 'step-start') endStep();
    else if (isSteeringPart(part)) {
      endStep();
      messages.push(...toUserMessages(part.parts, partPath));
    } else if (isToolPart(part)) {
      const toolParts = toToolParts(part, partPath, hints);
      content.push(...toolParts.content);
      results.push(...toolParts.results);
    } else content.push(...toAssistantParts(part, partPath));
  }
  endStep();
  return messages;
}

function toAssistantParts(part: UiChatPart, path: string): SpecAssistantPart[] {
  if (isTextPart(part)) return toText(part, part.type);
  if (isFilePart(part)) return [toFile(part, path)];
  if (isCustomPart(part)) return [{ type: 'custom', kind: part.kind, ...toOptions(part.providerMetadata) }];
  return [];
}

/**
 * Drops an empty text, which providers refuse. An empty text with metadata is kept, because it carries the
 * signature of reasoning without text.
 */
function toText<Type extends 'text' | 'reasoning'>(
  { text, providerMetadata }: UiChatTextPart,
  type: Type,
): { type: Type; text: string }[] {
  return text === '' && providerMetadata === undefined
    ? []
    : [{ type, text, ...toOptions(providerMetadata) }];
}

function toFile(part: UiChatFilePart, path: string): FilePart {
  const { type, mediaType, filename, url, providerReference, providerMetadata } = part;
  return {
    type,
    mediaType,
    data:
      providerReference === undefined
        ? toFileData(url, path)
        : { type: 'reference', reference: providerReference },
    ...(filename === undefined ? {} : { filename }),
    ...toOptions(providerMetadata),
  };
}

function toFileData(url: string, path: string): FilePart['data'] {
  const inlineData = parseDataUrl(url);
  if (inlineData !== undefined) return { type: 'data', data: inlineData.data };
  if (!isRemoteFile(url))
    throw invalidMember(`${path}.url`, 'must be a data URL in base64, or an http, https, gs or s3 address');
  return { type: 'url', url };
}

function toOptions(metadata: UiChatTextPart['providerMetadata']): {
  providerOptions?: NonNullable<UiChatTextPart['providerMetadata']>;
} {
  return metadata === undefined ? {} : { providerOptions: metadata };
}

function isTextPart(part: UiChatPart): part is UiChatTextPart {
  return part.type === 'text' || part.type === 'reasoning';
}

function isFilePart(part: UiChatPart): part is UiChatFilePart {
  return part.type === 'file' || part.type === 'reasoning-file';
}

function isCustomPart(part: UiChatPart): part is UiChatCustomPart {
  return part.type === 'custom';
}

function isSteeringPart(part: UiChatPart): part is UiChatSteeringPart {
  return part.type === 'steering-message';
}
