// The size of a request: the bytes of all its text, and its media with the most tokens that each
// can become. All strings of the body are text, except the medium itself (base64 data) in a content
// part, at the places where the request's format has content parts (media-parts.ts). What only
// looks like a medium elsewhere (the input of a tool, a schema, metadata) is sent to the model as
// text and counts as text. The punctuation of JSON counts apart: providers write tools, their
// inputs and schemas into the prompt as JSON or longer.
import { escapeBytesOf, isReadAsJson, shortEscapesIn } from './json-escapes.ts';
import { billableSeconds } from '../media/billable-audio.ts';
import { parseDataUrl } from '../media/data-url.ts';
import { filmSeconds } from '../media/film-duration.ts';
import {
  mediaSources,
  objectsIn,
  type MediumKind,
  type MediumSource,
  type RequestFormat,
} from './media-parts.ts';
import { countPdfPages, pdfBudget, type PdfBudget } from './pdf-pages.ts';
import { addedArgumentBytes, addedSchemaBytes, repeatedNameBytes } from './tool-names.ts';

export type { RequestFormat } from './media-parts.ts';

/** The size of a model's input. */
export interface Size {
  /**
   * Bytes in UTF-8 of every text and every name that the model reads. A token is at least a byte.
   */
  textBytes: number;
  /**
   * Bytes that the nested values need as JSON in addition: punctuation, escapes
   * of control characters.
   */
  structureBytes: number;
  /** Maximum tokens of all media together. */
  mediaTokens: number;
  /** Usual tokens of all media together; never more than `mediaTokens`. */
  usualMediaTokens: number;
  /** Number of media. */
  media: number;
  /** Turns of a conversation, or texts to embed. */
  turns: number;
  /** Collects the text that was counted, for a tokenizer. */
  text: () => RequestText;
}

interface MediumTokens {
  /** The upper bound. */
  most: number;
  /** The estimate that is charged when the provider reports no usage. */
  usual: number;
}

// The most that any provider of the catalog counts for one image: tiles and patches at the
// finest detail come to a few thousand, and to ten thousand when an image keeps its size. Usual
// images count 1,000 to 2,000.
const image: MediumTokens = { most: 16_384, usual: 2_048 };
// A page of a file counts as an image and as its text.
const page: MediumTokens = { most: 16_384, usual: 2_048 };
// Content at a URL, or stored by the provider, is of unknown length. The context
// window of most models is smaller and becomes the bound.
const unknownMedium: MediumTokens = { most: 262_144, usual: 32_768 };
// Google counts 32 tokens per second, OpenAI 10.
const audioTokensPerSecond: MediumTokens = { most: 50, usual: 32 };
// The slowest codecs in use have 750 bytes per second, which at 50 tokens is 15
// bytes per token; half of that as margin.
const audioBytesPerToken = 8;
// Google counts 258 tokens per second for one frame and 32 for the audio.
const filmTokensPerSecond: MediumTokens = { most: 400, usual: 300 };
// A video of 100 kbit/s at 300 tokens a second.
const filmBytesPerToken = 40;
// A PDF of 50 kB per page.
const fileBytesPerToken = 24;
const textBytesPerToken = 4;

// `model` is replaced by the provider's own name, and `headers` of the AI SDK's
// format are never sent.
const notSent = new Set(['model', 'headers']);

/** Measures the body of a request in the format. */
export function sizeOf(body: object, format: RequestFormat): Size {
  const size: Size = {
    textBytes: addedBytes(body, format),
    structureBytes: 0,
    mediaTokens: 0,
    usualMediaTokens: 0,
    media: 0,
    turns: 0,
    text: () => textOf(body, format),
  };
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    if (notSent.has(name)) continue;
    if (isRead(value)) addText(size, value);
    if (Array.isArray(value) && turnMembers.has(name)) size.turns += value.length;
    if (isStored(name, value)) addMedium(size, unknownMedium);
    if (name === 'providerOptions')
      for (const [member, option] of optionsIn(value))
        if (isStored(member, option)) addMedium(size, unknownMedium);
    if (name === 'input' || name === 'instructions')
      for (const item of objectsIn(value))
        if (item['type'] === 'item_reference') addMedium(size, unknownMedium);
  }
  const budget = pdfBudget();
  for (const source of mediaSources(body, format)) {
    const medium = readMedium(source);
    addMedium(size, tokensOf(medium, budget));
    if (medium.base64 !== undefined) size.textBytes -= Buffer.byteLength(source.text);
  }
  if (size.turns === 0) size.turns = 1;
  return size;
}

// The instruction for a model that is to fill in the text before `suffix`
// (formats/completions/request.ts).
const instructionBytes = 512;

function addedInstructionBytes(body: object, format: RequestFormat): number {
  const { suffix } = body as { suffix?: unknown };
  return format === 'completions' && typeof suffix === 'string' ? instructionBytes : 0;
}

/** Bytes of text that the gateway or the provider adds to the body. */
function addedBytes(body: object, format: RequestFormat): number {
  return (
    repeatedNameBytes(body, format) +
    addedSchemaBytes(body, format) +
    addedArgumentBytes(body, format) +
    addedInstructionBytes(body, format)
  );
}

/** The text of a request, for a tokenizer. */
export interface RequestText {
  /** Every name and every text, media left out. */
  texts: string[];
  /**
   * Bytes of all numbers and other literals, of brackets and commas, as JSON, and of
   * tool names that are sent again.
   */
  otherBytes: number;
}

function textOf(body: object, format: RequestFormat): RequestText {
  const text: RequestText = { texts: [], otherBytes: addedBytes(body, format) };
  const media = new Map<string, number>();
  for (const source of mediaSources(body, format))
    if (readMedium(source).base64 !== undefined) media.set(source.text, (media.get(source.text) ?? 0) + 1);
  for (const [name, value] of Object.entries(body) as [string, unknown][])
    if (!notSent.has(name) && isRead(value)) collectText(text, value, media);
  return text;
}

// `media` counts how often each text is a medium.
function collectText(text: RequestText, value: unknown, media: Map<string, number>, isJson = false): void {
  if (typeof value === 'string') {
    const mediumCount = media.get(value) ?? 0;
    if (mediumCount > 0) {
      media.set(value, mediumCount - 1);
      return;
    }
    text.texts.push(value);
    if (isJson) text.otherBytes += escapeBytesOf(value) + shortEscapesIn(value);
  } else if (typeof value !== 'object' || value === null) {
    text.otherBytes += literalBytesOf(value);
  } else if (Array.isArray(value)) {
    text.otherBytes += brackets + value.length;
    for (const item of value) collectText(text, item, media, isJson);
  } else {
    text.otherBytes += brackets;
    for (const name in value) {
      text.texts.push(name);
      const member = (value as Record<string, unknown>)[name];
      collectText(text, member, media, isJson || isReadAsJson(name, member));
    }
  }
}

// A number or a switch at the top level configures the model, which does not read it.
function isRead(value: unknown): boolean {
  return typeof value === 'string' || (typeof value === 'object' && value !== null);
}

/** Whether any part of the body requests the provider's cache for an hour. */
export function isKeptLong(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.some(isKeptLong);
  return (value as { ttl?: unknown }).ttl === '1h' || Object.values(value).some(isKeptLong);
}

const turnMembers = new Set(['messages', 'prompt', 'input', 'instructions', 'documents']);

// The depth was bounded when the body was parsed.
function addText(size: Size, value: unknown, isJson = false): void {
  if (typeof value === 'string') {
    size.textBytes += Buffer.byteLength(value);
    size.structureBytes += quotes + escapeBytesOf(value) + (isJson ? shortEscapesIn(value) : 0);
  } else if (typeof value !== 'object' || value === null) {
    size.textBytes += literalBytesOf(value);
  } else if (Array.isArray(value)) {
    size.structureBytes += brackets + value.length;
    for (const item of value) addText(size, item, isJson);
  } else {
    size.structureBytes += brackets;
    for (const name in value) {
      size.textBytes += Buffer.byteLength(name);
      size.structureBytes += quotes + separators;
      const member = (value as Record<string, unknown>)[name];
      addText(size, member, isJson || isReadAsJson(name, member));
    }
  }
}

const quotes = 2;
const brackets = 2;
// The colon after a name and the comma after its value.
const separators = 2;

// Python writes the number 1e15 as 1000000000000000.0 and an integer with all
// its digits, up to 309.
function literalBytesOf(value: unknown): number {
  if (typeof value !== 'number') return value === undefined ? 0 : 5;
  if (!Number.isInteger(value)) return String(value).length;
  // A logarithm for the digits: BigInt would take microseconds for each of 500,000 numbers.
  const digits = Math.abs(value) < 1e21 ? String(value).length : Math.ceil(Math.log10(Math.abs(value))) + 2;
  return digits + 2;
}

// Whether the member refers to text that the provider stores and reads before the sent one: an
// earlier answer, a conversation, a thread, a prompt by its id.
function isStored(name: string, value: unknown): boolean {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (name === 'prompt') return isObject;
  if (name === 'thread') return isObject && ('previous_message_id' in value || 'previousMessageId' in value);
  return (isObject || typeof value === 'string') && storedMembers.has(name);
}

const storedMembers = new Set(['previous_response_id', 'previousResponseId', 'conversation']);

function optionsIn(providerOptions: unknown): [string, unknown][] {
  return Object.values(providerOptions ?? {}).flatMap(
    (members: unknown) => Object.entries(members ?? {}) as [string, unknown][],
  );
}

function addMedium(size: Size, { most, usual }: MediumTokens): void {
  size.media += 1;
  size.mediaTokens += most;
  size.usualMediaTokens += Math.min(usual, most);
}

interface Medium {
  kind: MediumKind;
  /**
   * The kind of medium that a provider may read a file as, by the type of its data URL or by its
   * first bytes.
   */
  readAs: MediumKind | undefined;
  mediaType: string | undefined;
  /** Undefined when the part has a URL or an id instead of data. */
  base64: string | undefined;
}

function readMedium({ kind, text, isData, mediaType: declared }: MediumSource): Medium {
  const inlineData = parseDataUrl(text);
  const isInline = inlineData !== undefined || (isData && !/^(?:https?|data):/i.test(text));
  const mediaType = (declared ?? inlineData?.mediaType)?.toLowerCase();
  const data = isInline ? (inlineData?.data ?? text) : undefined;
  const base64 = data !== undefined && isBase64(data) ? data : undefined;
  return {
    kind: kindOf(kind, { declared, mediaType }),
    readAs: playableKind(mediaType, base64),
    mediaType,
    base64,
  };
}

// Line breaks of MIME are 2 of 78 characters. A text with more that is no base64 is
// read as text, if at all.
function isBase64(data: string): boolean {
  return Buffer.from(data, 'base64').length >= Math.floor(data.length * 0.75 * 0.9) - 2;
}

/** Audio and video, whose tokens follow the playing time and not the bytes. */
function playableKind(mediaType: string | undefined, base64: string | undefined): MediumKind | undefined {
  const head = Buffer.from(base64?.slice(0, 64) ?? '', 'base64');
  if (filmHeads.some(({ at, bytes }) => head.subarray(at, at + bytes.length).equals(bytes))) return 'video';
  const family = mediaType?.split('/')[0];
  return family === 'audio' || family === 'video' ? family : undefined;
}

// MP4 and QuickTime, WebM and Matroska, AVI, FLV, MPEG program streams.
const filmHeads = [
  { at: 4, bytes: Buffer.from('ftyp', 'latin1') },
  { at: 4, bytes: Buffer.from('moov', 'latin1') },
  { at: 0, bytes: Buffer.from([0x1a, 0x45, 0xdf, 0xa3]) },
  { at: 8, bytes: Buffer.from('AVI ', 'latin1') },
  { at: 0, bytes: Buffer.from('FLV', 'latin1') },
  { at: 0, bytes: Buffer.from([0, 0, 1, 0xba]) },
];

// Providers read a part by its media type, whatever its member is named: a PDF in
// `image_url` is a file of many pages. A file counts as less than its bytes only when a
// member declares the media type.
function kindOf(
  kind: MediumKind,
  { declared, mediaType }: { declared: string | undefined; mediaType: string | undefined },
): MediumKind {
  const family = (kind === 'file' ? declared?.toLowerCase() : mediaType)?.split('/')[0];
  if (family === undefined || family === '') return kind;
  return family === 'image' || family === 'audio' || family === 'video' ? family : 'file';
}

function tokensOf(medium: Medium, budget: PdfBudget): MediumTokens {
  const { kind, readAs } = medium;
  const tokens = tokensOfKind(medium, budget);
  if (readAs === undefined || kind !== 'file') return tokens;
  // A provider that does not play the file reads its bytes.
  const playedTokens = tokensOfKind({ ...medium, kind: readAs }, budget);
  return {
    most: Math.max(tokens.most, playedTokens.most),
    usual: Math.max(tokens.usual, playedTokens.usual),
  };
}

function tokensOfKind({ kind, mediaType, base64 }: Medium, budget: PdfBudget): MediumTokens {
  if (kind === 'image') return image;
  if (base64 === undefined) return unknownMedium;
  const bytes = Math.ceil((base64.length * 3) / 4);
  if (kind === 'audio') return audioTokens(base64, bytes);
  if (kind === 'video') return filmTokens(Buffer.from(base64, 'base64'));
  // A byte of a file is never more than one token; rendered pages count in addition to their text.
  if (mediaType?.startsWith('text/') === true && !isPdf(base64))
    return { most: bytes, usual: Math.ceil(bytes / textBytesPerToken) };
  return fileTokens(Buffer.from(base64, 'base64'), mediaType, budget);
}

// A byte is at most one token, but a video of few frames has fewer bytes than tokens.
function filmTokens(content: Buffer): MediumTokens {
  const seconds = filmSeconds(content);
  const { most, usual } = filmTokensPerSecond;
  return {
    most: Math.max(
      content.length,
      image.most,
      seconds === null ? unknownMedium.most : Math.ceil(seconds * most),
    ),
    usual: Math.max(
      seconds === null ? Math.ceil(content.length / filmBytesPerToken) : Math.ceil(seconds * usual),
      image.usual,
    ),
  };
}

function audioTokens(base64: string, bytes: number): MediumTokens {
  const seconds = billableSeconds(Buffer.from(base64, 'base64'));
  const { most, usual } = audioTokensPerSecond;
  if (seconds === null)
    return {
      most: Math.ceil(bytes / audioBytesPerToken),
      usual: Math.ceil((bytes / audioBytesPerToken) * (usual / most)),
    };
  return { most: Math.ceil(seconds * most), usual: Math.ceil(seconds * usual) };
}

// The PDF header may be anywhere in the first 1,024 bytes.
function isPdf(base64: string): boolean {
  return Buffer.from(base64.slice(0, 1_368), 'base64').includes('%PDF');
}

// The magic number of ZIP, which DOCX, XLSX and PPTX are. Their text is a thousand
// times longer than their bytes at most.
const zip = Buffer.from('PK\x03\x04', 'latin1');

function fileTokens(content: Buffer, mediaType: string | undefined, budget: PdfBudget): MediumTokens {
  const bytes = content.length;
  if (content.subarray(0, zip.length).equals(zip)) return unknownMedium;
  const isPdfFile = mediaType === 'application/pdf' || content.includes('%PDF');
  const pages = isPdfFile ? countPdfPages(content, budget) : { most: 1, usual: 1 };
  return {
    most: Math.max(bytes, page.most * pages.most),
    usual: Math.max(Math.ceil(bytes / fileBytesPerToken), page.usual * pages.usual),
  };
}
