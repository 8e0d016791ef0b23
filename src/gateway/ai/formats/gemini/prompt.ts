// Converts the contents of a Gemini request to a prompt in the AI SDK's format.
import type {
  GeminiContent,
  GeminiPart,
  GeminiRequest,
  StreamRequest,
} from '../../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { ProviderOptions } from '../../hub/language-model.ts';
import { isRemoteFile } from '../translation/file-address.ts';
import { decodeReplay } from '../translation/replay.ts';
import { unsupportedMember } from '../../hub/problems.ts';
import type {
  SpecMessage,
  SpecUserPart,
  SpecAssistantPart,
  SpecToolPart,
} from '../translation/spec-prompt.ts';

interface FunctionCall {
  id: string;
  name: string;
}

interface CallQueue {
  calls: FunctionCall[];
  next: number;
}

/**
 * Function calls that have no result yet. Many clients send no ids; their results are matched by name, in
 * the order of the calls. Both look-ups take constant time, as a request can contain thousands of calls.
 */
class FunctionCalls {
  count = 0;
  readonly #byId = new Map<string, CallQueue>();
  readonly #byName = new Map<string, CallQueue>();
  readonly #answered = new Set<FunctionCall>();

  add(call: FunctionCall): void {
    this.count += 1;
    enqueue(this.#byId, call.id, call);
    enqueue(this.#byName, call.name, call);
  }

  /** Returns and removes the first call with the id or name; undefined if no such call is left. */
  take(key: { id: string } | { name: string }): FunctionCall | undefined {
    const queue = 'id' in key ? this.#byId.get(key.id) : this.#byName.get(key.name);
    while (queue !== undefined && queue.next < queue.calls.length) {
      const call = queue.calls[queue.next];
      queue.next += 1;
      if (call === undefined || this.#answered.has(call)) continue;
      this.#answered.add(call);
      return call;
    }
    return undefined;
  }
}

function enqueue(queues: Map<string, CallQueue>, key: string, call: FunctionCall): void {
  const queue = queues.get(key);
  if (queue === undefined) queues.set(key, { calls: [call], next: 0 });
  else queue.calls.push(call);
}

export function toPrompt({ systemInstruction, contents }: GeminiRequest): StreamRequest['prompt'] {
  const calls = new FunctionCalls();
  const system = systemInstruction === undefined ? '' : readSystemText(systemInstruction);
  return [
    ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
    ...contents.flatMap((content, index) => toMessages(content, `contents[${index}]`, calls)),
  ];
}

function readSystemText({ parts = [] }: GeminiContent): string {
  return parts
    .map((part, index) => {
      if (part.text === undefined) throw invalidProblem(`systemInstruction.parts[${index}]`, 'must be text');
      return part.text;
    })
    .join('\n');
}

function toMessages(
  { role = 'user', parts = [] }: GeminiContent,
  path: string,
  calls: FunctionCalls,
): SpecMessage[] {
  const partPath = (index: number) => `${path}.parts[${index}]`;
  if (role === 'model')
    return [
      {
        role: 'assistant',
        content: parts.map((part, index) => toAssistantPart(part, partPath(index), calls)),
      },
    ];
  // Gemini allows function results and user text in one content; the hub needs a message for each.
  const results: SpecToolPart[] = [];
  const userParts: SpecUserPart[] = [];
  for (const [index, part] of parts.entries()) {
    if (part.functionResponse === undefined) userParts.push(toUserPart(part, partPath(index)));
    else results.push(toToolResult(part.functionResponse, partPath(index), calls));
  }
  return [
    ...(results.length === 0 ? [] : [{ role: 'tool' as const, content: results }]),
    ...(userParts.length === 0 ? [] : [{ role: 'user' as const, content: userParts }]),
  ];
}

function toUserPart(part: GeminiPart, path: string): SpecUserPart {
  const { text, inlineData, fileData } = part;
  if (text !== undefined) return { type: 'text', text };
  if (inlineData !== undefined)
    return {
      type: 'file',
      mediaType: inlineData.mimeType,
      data: { type: 'data', data: inlineData.data },
      ...(inlineData.displayName === undefined ? {} : { filename: inlineData.displayName }),
    };
  if (fileData !== undefined) {
    if (!isRemoteFile(fileData.fileUri))
      throw invalidProblem(`${path}.fileData.fileUri`, 'must be an http, https, gs or s3 address');
    return {
      type: 'file',
      mediaType: fileData.mimeType ?? 'application/octet-stream',
      data: { type: 'url', url: fileData.fileUri },
    };
  }
  throw unsupportedPart(part, path);
}

function toAssistantPart(part: GeminiPart, path: string, calls: FunctionCalls): SpecAssistantPart {
  const { text, thought: isReasoning, functionCall } = part;
  const options = toProviderOptions(part.thoughtSignature);
  if (text !== undefined) return { type: isReasoning === true ? 'reasoning' : 'text', text, ...options };
  if (functionCall === undefined) throw unsupportedPart(part, path);
  const { name, args = {}, id = `call_${calls.count + 1}` } = functionCall;
  calls.add({ id, name });
  return { type: 'tool-call', toolCallId: id, toolName: name, input: args, ...options };
}

// A signature is Google's own, or one that the gateway packed if the conversation began in another format.
function toProviderOptions(signature: string | undefined): { providerOptions?: ProviderOptions } {
  if (signature === undefined) return {};
  const replay = decodeReplay(signature);
  return { providerOptions: replay?.options ?? { google: { thoughtSignature: signature } } };
}

function toToolResult(
  { id, name, response }: NonNullable<GeminiPart['functionResponse']>,
  path: string,
  calls: FunctionCalls,
): SpecToolPart {
  const call = calls.take(id === undefined ? { name } : { id });
  if (call === undefined)
    throw invalidProblem(`${path}.functionResponse`, `answers no call of ${name} in an earlier content`);
  return {
    type: 'tool-result',
    toolCallId: call.id,
    toolName: name,
    output: { type: 'json', value: response ?? {} },
  };
}

function unsupportedPart(part: GeminiPart, path: string): Problem {
  const [member] = Object.keys(part);
  if (member === undefined) return invalidProblem(path, 'is empty');
  return unsupportedMember(`${path}.${member}`, `A part with ${member} is not supported at ${path}.`);
}

function invalidProblem(path: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `The member ${path} ${message}.`, {
    param: path,
    details: [{ path, message }],
  });
}
