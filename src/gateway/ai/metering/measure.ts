// How much a request holds, whatever its format: the bytes of all its text, and the media that it brings along with
// the most tokens that each can become. Formats differ in where they put things, not in what things are, so the
// parsed body is walked as it is.
import { audioSeconds } from '../media/duration.ts';

/** The size of what a model is given. */
export interface Size {
  /** Bytes in UTF-8 of every text and every name. A token is at least a byte. */
  textBytes: number;
  /** The most that all media together can count for. */
  mediaTokens: number;
  /** The parts that are media. */
  media: number;
  /** Turns of a conversation, or texts to embed. */
  turns: number;
}

type Kind = 'image' | 'audio' | 'video' | 'file';

// What the type of a part is called among the formats.
const kindOfType: Readonly<Record<string, Kind>> = {
  image: 'image', image_url: 'image', input_image: 'image', computer_screenshot: 'image', 'image-data': 'image', 'image-url': 'image', 'image-file-id': 'image',
  input_audio: 'audio', audio: 'audio', audio_url: 'audio',
  video: 'video', video_url: 'video', input_video: 'video',
  file: 'file', input_file: 'file', document: 'file', 'reasoning-file': 'file', 'file-data': 'file', 'file-url': 'file', 'file-id': 'file', media: 'file',
};

// The most that any provider of the catalog counts for one picture: tiles and patches at the finest detail come to a
// few thousand, and ten thousand where a picture may stay as large as it is.
const imageTokens = 16_384;
// Google counts 32 a second, OpenAI 10.
const audioTokensPerSecond = 50;
// The slowest codecs in use spend 750 bytes a second, which at 50 tokens makes 15 bytes a token; half of that for care.
const audioBytesPerToken = 8;
// A page counts as a picture and as its text.
const pageTokens = 16_384;
// What lies at an address, or is kept by the provider, is of any length. The context window is smaller for most models,
// and then it is the bound.
const unknownTokens = 262_144;

/** Members of a body that no model reads. */
const unread = new Set(['model', 'stream', 'stream_options', 'headers', 'metadata', 'user', 'store', 'reasoning_effort']);

/** Measures the body of a request. */
export function sizeOf(body: object): Size {
  const size: Size = { textBytes: 0, mediaTokens: 0, media: 0, turns: 0 };
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    if (unread.has(name)) continue;
    if (isKept(name, value)) {
      addUnknown(size);
      continue;
    }
    if (name === 'providerOptions' && isKeptByOptions(value)) addUnknown(size);
    // A number or a switch at the top sets the model, and is not read by it.
    if (typeof value === 'string') size.textBytes += Buffer.byteLength(value);
    if (typeof value !== 'object' || value === null) continue;
    size.turns += Array.isArray(value) && turnMembers.has(name) ? value.length : 0;
    walk(value, size);
  }
  if (size.turns === 0) size.turns = 1;
  return size;
}

/** Whether the provider is asked, anywhere in the body, to keep a part of it in its cache for an hour. */
export function isKeptLong(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.some(isKeptLong);
  return (value as { ttl?: unknown }).ttl === '1h' || Object.values(value).some(isKeptLong);
}

// What the provider keeps and reads before what was sent: an earlier answer, a conversation, a thread, a prompt by its
// id.
function isKept(name: string, value: unknown): boolean {
  const isNamed = typeof value === 'string' || (typeof value === 'object' && value !== null && !Array.isArray(value));
  if (name === 'prompt') return isNamed && typeof value === 'object';
  if (name === 'thread') return isNamed && typeof value === 'object' && ('previous_message_id' in value || 'previousMessageId' in value);
  return isNamed && keptMembers.has(name);
}

const keptMembers = new Set(['previous_response_id', 'previousResponseId', 'conversation']);

function isKeptByOptions(options: unknown): boolean {
  return Object.values(options ?? {}).some((members: unknown) => Object.entries(members ?? {}).some(([name, value]) => isKept(name, value)));
}

function addUnknown(size: Size): void {
  size.media += 1;
  size.mediaTokens += unknownTokens;
}

const turnMembers = new Set(['messages', 'prompt', 'input', 'documents']);

function walk(value: object, size: Size): void {
  if (Array.isArray(value)) {
    for (const item of value) visit(item, size);
    return;
  }
  const { type } = value as { type?: unknown };
  if (type === 'item_reference') {
    addUnknown(size);
    return;
  }
  const kind = typeof type === 'string' ? mediumOf(type, value as Part) : undefined;
  if (kind !== undefined) {
    size.media += 1;
    size.mediaTokens += mostTokens(kind, value as Part);
    return;
  }
  for (const name in value) {
    size.textBytes += Buffer.byteLength(name);
    visit((value as Record<string, unknown>)[name], size);
  }
}

function visit(value: unknown, size: Size): void {
  if (typeof value === 'string') size.textBytes += Buffer.byteLength(value);
  else if (typeof value === 'object' && value !== null) walk(value, size);
  // The longest number has 24 digits and signs; most have few.
  else if (value !== undefined) size.textBytes += typeof value === 'number' ? String(value).length : 5;
}

interface Part {
  mediaType?: unknown;
  media_type?: unknown;
  source?: unknown;
}

// A part is a medium by its type, or not: a schema may have a member `type` that says `file`, and then it has no content.
function mediumOf(type: string, part: Part): Kind | undefined {
  const kind = Object.hasOwn(kindOfType, type) ? kindOfType[type] : undefined;
  if (kind === undefined) return undefined;
  const found = contentOf(part);
  if (found === undefined) return undefined;
  const given = mediaTypeOf(part, found);
  if (given === undefined || kind !== 'file') return kind;
  const family = given.split('/')[0] ?? '';
  // Text that comes as a file, and what holds parts of its own, are walked like any text.
  if (family === 'text' && !found.isInline) return undefined;
  return family === 'image' || family === 'audio' || family === 'video' ? family : 'file';
}

interface Content {
  text: string;
  /** Whether it is base64 and not an address or an id. */
  isInline: boolean;
}

const contentMembers = ['data', 'url', 'image_url', 'file_data', 'file_url', 'file_id', 'fileId', 'audio_url', 'video_url', 'input_audio', 'file', 'source', 'reference'];

/** The text that is the medium or leads to it, wherever the format has put it; undefined when there is none. */
function contentOf(part: object, depth = 0): Content | undefined {
  if ((part as { type?: unknown }).type === 'text' || depth > 3) return undefined;
  for (const name of contentMembers) {
    const value = (part as Record<string, unknown>)[name];
    if (typeof value === 'string') return { text: value, isInline: value.startsWith('data:') || !/^https?:/i.test(value) && !/url|id$/i.test(name) };
    if (typeof value === 'object' && value !== null) {
      const found = contentOf(value, depth + 1) ?? (name === 'reference' ? { text: '', isInline: false } : undefined);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

function mediaTypeOf({ mediaType, media_type: snake, source }: Part, { text }: Content): string | undefined {
  if (typeof mediaType === 'string') return mediaType.toLowerCase();
  if (typeof snake === 'string') return snake.toLowerCase();
  const nested = (source as { media_type?: unknown } | undefined)?.media_type;
  if (typeof nested === 'string') return nested.toLowerCase();
  return /^data:([^;,]+)/i.exec(text)?.[1]?.toLowerCase();
}

function mostTokens(kind: Kind, part: Part): number {
  const { text, isInline } = contentOf(part) ?? { text: '', isInline: false };
  if (kind === 'image') return imageTokens;
  if (!isInline) return unknownTokens;
  const base64 = text.startsWith('data:') ? text.slice(text.indexOf(',') + 1) : text;
  const bytes = Math.ceil((base64.length * 3) / 4);
  if (kind === 'audio') return audioTokens(base64, bytes);
  // A byte of a film is never more than a token, nor is one of a file; pages that are drawn count on top of their text.
  if (kind === 'video') return Math.max(bytes, imageTokens);
  return mediaTypeOf(part, { text, isInline })?.startsWith('text/') === true ? bytes : Math.max(bytes, pageTokens * pagesOf(base64));
}

function audioTokens(base64: string, bytes: number): number {
  const seconds = audioSeconds(Buffer.from(base64, 'base64'));
  return seconds === null ? Math.ceil(bytes / audioBytesPerToken) : Math.ceil(seconds * audioTokensPerSecond);
}

// The pages that a PDF shows without being unpacked; one where it shows none.
function pagesOf(base64: string): number {
  const shown = Buffer.from(base64, 'base64').toString('latin1').match(/\/Type\s*\/Page\b(?!s)/g);
  return Math.max(shown?.length ?? 0, 1);
}
