// Text about tools that the provider's prompt has in addition to the request. Most of it are tool names: a
// tool result refers to its call only by an id, and the gateway or the provider adds the tool's name.
// Google's format has the name of each result twice.
import { parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { shortEscapesIn } from './json-escapes.ts';
import { objectsIn, type RequestFormat } from './media-parts.ts';

type Part = Readonly<Record<string, unknown>>;

const formatsWithoutTools = new Set<RequestFormat>(['completions', 'embeddings', 'moderations', 'rerank']);

/** How often the name is sent with each result, in addition to its occurrence in the body. */
const namesPerResult = 2;

/** The bytes of all tool names that are sent with results and are not in the body. */
export function repeatedNameBytes(body: object, format: RequestFormat): number {
  const { messages, prompt, input, instructions } = body as Part;
  if (format === 'responses') return repeatedBytes([...objectsIn(instructions), ...objectsIn(input)]);
  if (formatsWithoutTools.has(format)) return 0;
  const turns = objectsIn(format === 'stream' ? prompt : messages);
  return repeatedBytes(
    turns.flatMap((turn) => [turn, ...objectsIn(turn['tool_calls']), ...objectsIn(turn['content'])]),
  );
}

// A custom tool takes plain text. For a provider that supports only tools with a
// schema, the gateway adds a schema of about 110 bytes (formats/responses/tools.ts).
const customSchemaBytes = 160;

// The separator between the names of a namespace and its tool, or the hash that shortens both
// (formats/responses/tool-table.ts).
const joinBytes = 16;

/** The bytes of schemas and names that the gateway may add to the tools of the request. */
export function addedSchemaBytes(body: object, format: RequestFormat): number {
  if (format !== 'responses') return 0;
  let bytes = 0;
  for (const tool of objectsIn((body as Part)['tools'])) {
    bytes += schemaBytesOf(tool);
    if (tool['type'] !== 'namespace') continue;
    const nameBytes = typeof tool['name'] === 'string' ? Buffer.byteLength(tool['name']) : 0;
    for (const member of objectsIn(tool['tools'])) bytes += schemaBytesOf(member) + nameBytes + joinBytes;
  }
  return bytes;
}

function schemaBytesOf({ type }: Part): number {
  return type === 'custom' ? customSchemaBytes : 0;
}

/**
 * The bytes by which the arguments of earlier tool calls grow when a translation or a provider parses and
 * serializes them again: 1e20 becomes 21 digits. Only formats that send arguments as a JSON string need this.
 */
export function addedArgumentBytes(body: object, format: RequestFormat): number {
  const { messages, input } = body as Part;
  const calls =
    format === 'responses'
      ? objectsIn(input)
      : objectsIn(messages).flatMap(({ tool_calls: list, function_call: call }) =>
          objectsIn([...objectsIn(list).map((item) => item['function']), call]),
        );
  return calls.reduce(
    (sum, { arguments: text }) =>
      typeof text === 'string' ? sum + addedExponentBytes(text) + addedQuoteBytes(text) : sum,
    0,
  );
}

// Longer arguments are not parsed here and count like arguments that are not JSON.
const longestParsed = 64 * 1024;

/** Arguments that are not JSON are sent as a JSON string, whose quotes and line feeds are escaped. */
function addedQuoteBytes(text: string): number {
  if (text.length <= longestParsed && parseJsonOrUndefined(text) !== undefined) return 0;
  return shortEscapesIn(text);
}

// A longer mantissa has more characters than the digits that it becomes.
const longestMantissa = 24;
// 1e20 has 4 characters and becomes 21 digits.
const longestGrowth = 17;
// This many numbers are measured one by one; each further number counts with the longest growth, so that a
// string of 10 MB does not block the event loop.
const measuredNumbers = 2_048;

function addedExponentBytes(text: string): number {
  let bytes = 0;
  let numbers = 0;
  let isAfterDigit = false;
  for (let offset = 0; offset < text.length; offset += 1) {
    const code = text.charCodeAt(offset);
    // `e` in either case after a digit.
    if (isAfterDigit && (code | 0x20) === 0x65) {
      numbers += 1;
      bytes += numbers > measuredNumbers ? longestGrowth : growthOfNumber(text, offset);
    }
    isAfterDigit = code >= 0x30 && code <= 0x39;
  }
  return bytes;
}

/** The bytes by which the number with an exponent at the offset grows. */
function growthOfNumber(text: string, offset: number): number {
  const mantissa = /-?\d+(?:\.\d+)?$/.exec(text.slice(Math.max(0, offset - longestMantissa), offset))?.[0];
  const exponent = /^[+-]?\d{1,4}/.exec(text.slice(offset + 1, offset + 6))?.[0];
  if (mantissa === undefined || exponent === undefined) return 0;
  const number = `${mantissa}e${exponent}`;
  return Math.max(0, String(Number(number)).length - number.length);
}

// Reads the members of every format in each part, and counts the longest name: a member of another format
// can only raise the result, never lower it.
function repeatedBytes(parts: readonly Part[]): number {
  const bytesOfCalls = new Map<string, number>();
  let bytes = 0;
  for (const part of parts) {
    if (part['type'] === 'tool-result' && typeof part['toolName'] === 'string')
      // The AI SDK's results have the name once.
      bytes += (namesPerResult - 1) * Buffer.byteLength(part['toolName']);
    else if (isResult(part))
      bytes += namesPerResult * Math.max(0, ...idsOf(part).map((id) => bytesOfCalls.get(id) ?? 0));
    addCall(bytesOfCalls, part);
  }
  return bytes;
}

function isResult({ type, role, tool_use_id: messagesId }: Part): boolean {
  return (
    role === 'tool' ||
    type === 'tool-result' ||
    typeof messagesId === 'string' ||
    (typeof type === 'string' && type.endsWith('_output'))
  );
}

// Chat completions, responses, messages and text name the id of a call differently.
function idsOf(part: Part): string[] {
  return ['call_id', 'tool_call_id', 'tool_use_id', 'id'].flatMap((name) => {
    const id = part[name];
    return typeof id === 'string' ? [id] : [];
  });
}

function addCall(bytesOfCalls: Map<string, number>, part: Part): void {
  const calledFunction = part['function'] as Part | null | undefined;
  const names = [part['name'], part['tool_name'], calledFunction?.['name']];
  const nameBytes = Math.max(
    0,
    ...names.map((name) => (typeof name === 'string' ? Buffer.byteLength(name) : 0)),
  );
  const namespace = part['namespace'];
  const bytes = nameBytes + (typeof namespace === 'string' ? Buffer.byteLength(namespace) + joinBytes : 0);
  if (bytes === 0) return;
  for (const id of idsOf(part)) bytesOfCalls.set(id, Math.max(bytes, bytesOfCalls.get(id) ?? 0));
}
