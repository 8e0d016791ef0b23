// Names of tools that a request has once and a provider reads again. A result of a tool names its call by an id alone, and
// the gateway or the provider writes the tool's name beside it; Google's format has the name of each result twice.
import { objectsIn, type RequestFormat } from './media-parts.ts';

type Part = Readonly<Record<string, unknown>>;

/** How often the name is sent with each result, beside where the body has it. */
const namesPerResult = 2;

/** The bytes of all tool names that go with results and are not in the body. */
export function repeatedNameBytes(body: object, format: RequestFormat): number {
  const { messages, prompt, input } = body as Part;
  if (format === 'responses') return repeatedBytes(objectsIn(input));
  if (format === 'embeddings' || format === 'rerank') return 0;
  const turns = objectsIn(format === 'stream' ? prompt : messages);
  return repeatedBytes(
    turns.flatMap((turn) => [turn, ...objectsIn(turn['tool_calls']), ...objectsIn(turn['content'])]),
  );
}

// The members by which formats name a call and, in its result, refer to it: chat completions, responses, messages, text.
function repeatedBytes(parts: readonly Part[]): number {
  const bytesOfCalls = new Map<unknown, number>();
  let bytes = 0;
  for (const part of parts) {
    const result = part['tool_use_id'] ?? resultId(part);
    if (part['type'] === 'tool-result' && typeof part['toolName'] === 'string')
      // The AI SDK's results have the name once.
      bytes += (namesPerResult - 1) * Buffer.byteLength(part['toolName']);
    else if (typeof result === 'string') bytes += namesPerResult * (bytesOfCalls.get(result) ?? 0);
    else addCall(bytesOfCalls, part);
  }
  return bytes;
}

function resultId(part: Part): unknown {
  const { type, role } = part;
  if (role === 'tool' || type === 'tool-result') return part['tool_call_id'];
  return typeof type === 'string' && type.endsWith('_output') ? part['call_id'] : undefined;
}

function addCall(bytesOfCalls: Map<unknown, number>, part: Part): void {
  const calledFunction = part['function'] as Part | null | undefined;
  const name = part['name'] ?? part['tool_name'] ?? calledFunction?.['name'];
  const callId = part['call_id'] ?? part['tool_call_id'] ?? part['id'];
  if (typeof name === 'string' && callId !== undefined) bytesOfCalls.set(callId, Buffer.byteLength(name));
}
