// The size of a request: the bytes of all its text, and its media with the most tokens that each
// can become. All strings of the body are text, except the medium itself (base64 data) in a content
// part, at the places where the request's format has content parts (media-parts.ts). What only
// looks like a medium elsewhere (the input of a tool, a schema, metadata) is sent to the model as
// text and counts as text. The punctuation of JSON is counted separately: providers write tools, their
// inputs and schemas into the prompt as JSON, or in a longer form.
import { escapeBytesOf, isReadAsJson, shortEscapesIn } from './json-escapes.ts';
import { mediaSources, objectsIn, type RequestFormat } from './media-parts.ts';
import { readMedium, tokensOfMedium, unknownMedium, type MediumTokens } from './medium-tokens.ts';
import { pdfBudget } from './pdf-pages.ts';
import { addedArgumentBytes, addedSchemaBytes, repeatedNameBytes } from './tool-names.ts';

export type { RequestFormat } from './media-parts.ts';

/** The size of a model's input. */
export interface Size {
  /**
   * Bytes in UTF-8 of every string and every member name that the model reads. A token has at least one byte,
   * so this is an upper bound for tokens.
   */
  textBytes: number;
  /**
   * Additional bytes of the nested values when they are written as JSON: punctuation and escapes.
   */
  structureBytes: number;
  /** Maximum tokens of all media together. */
  mediaTokens: number;
  /** Typical tokens of all media together; never more than `mediaTokens`. */
  usualMediaTokens: number;
  /** Number of media. */
  media: number;
  /** Number of turns of a conversation, or of texts to embed. */
  turns: number;
  /** Collects the counted text, for a tokenizer. */
  readText: () => RequestText;
}

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
    readText: () => textOf(body, format),
  };
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    if (notSent.has(name)) continue;
    if (isRead(value)) addText(size, value);
    if (Array.isArray(value) && turnMembers.has(name)) size.turns += value.length;
    // Text that the provider has stored is as long as an unknown medium may be.
    const storedReferences = countStoredReferences(name, value);
    for (let count = 0; count < storedReferences; count += 1) addMedium(size, unknownMedium);
  }
  const budget = pdfBudget();
  for (const source of mediaSources(body, format)) {
    const medium = readMedium(source);
    addMedium(size, tokensOfMedium(medium, budget));
    if (medium.base64 !== undefined) size.textBytes -= Buffer.byteLength(source.text);
  }
  if (size.turns === 0) size.turns = 1;
  return size;
}

// The instruction to fill in the text before `suffix`, which formats/completions/request.ts adds.
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
  /** Every member name and every string, without media. */
  texts: string[];
  /**
   * Bytes of everything else: numbers and other literals, brackets, commas and escapes of JSON, and text that
   * the gateway or the provider adds.
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

// `media` has the base64 strings that are media and therefore not text, and how often each occurs.
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

// Whether the model reads a top-level member. Numbers and booleans at this level only configure the call.
function isRead(value: unknown): boolean {
  return typeof value === 'string' || (typeof value === 'object' && value !== null);
}

/** Whether any part of the body requests the provider's cache for an hour. */
export function usesHourCache(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.some(usesHourCache);
  return (value as { ttl?: unknown }).ttl === '1h' || Object.values(value).some(usesHourCache);
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

// The length of `false`, the longest literal that is not a number.
const literalBytes = 5;

// The longest form in which a provider may write the value. Python writes the number 1e15 as
// 1000000000000000.0, and an integer with all its digits, up to 309.
function literalBytesOf(value: unknown): number {
  if (typeof value !== 'number') return value === undefined ? 0 : literalBytes;
  if (!Number.isInteger(value)) return String(value).length;
  // A logarithm for the digits: BigInt would take microseconds for each of 500,000 numbers.
  const digits = Math.abs(value) < 1e21 ? String(value).length : Math.ceil(Math.log10(Math.abs(value))) + 2;
  return digits + 2;
}

/** How many texts that only the provider has stored the member adds to the model's input. */
function countStoredReferences(name: string, value: unknown): number {
  if (isStoredReference(name, value)) return 1;
  if (name === 'providerOptions')
    return optionsIn(value).filter(([member, option]) => isStoredReference(member, option)).length;
  if (name === 'input' || name === 'instructions')
    return objectsIn(value).filter(({ type }) => type === 'item_reference').length;
  return 0;
}

// Whether the member names text that the provider has stored, which the model reads before the request: an
// earlier answer, a conversation, a thread, or a prompt by its id.
function isStoredReference(name: string, value: unknown): boolean {
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
