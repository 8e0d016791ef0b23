// Which media a call brings along, held against what the model takes in, and how much a local model reads. A model
// whose catalog entry does not name its inputs is left to answer for itself.
import type { ChatCompletionRequest } from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ModelCall, Prompt } from '../hub/language-model.ts';

/** Throws a 422 when the prompt has a file of a kind that the model does not take. `name` is what the caller calls it. */
export function checkPromptInputs(model: CatalogModel, prompt: Prompt, name = 'prompt'): void {
  for (const [index, message] of prompt.entries()) {
    if (typeof message.content === 'string') continue;
    for (const [position, part] of message.content.entries()) {
      const place = `${name}[${index}].content[${position}]`;
      if (part.type === 'file') requireInput(model, kindOf(part.mediaType), place);
      if (part.type !== 'tool-result' || part.output.type !== 'content') continue;
      for (const [at, piece] of part.output.value.entries()) {
        if (piece.type === 'file')
          requireInput(model, kindOf(piece.mediaType), `${place}.output.value[${at}]`);
      }
    }
  }
}

/** Throws a 422 for a JSON answer without a schema, where the model would answer in plain text. `param` names the member. */
export function checkAnswerFormat(
  { id, providerEntry: by }: Pick<CatalogModel, 'id' | 'providerEntry'>,
  format: ModelCall['responseFormat'],
  param: string,
): void {
  // Anthropic's format has JSON by a schema alone, and the package drops the member without one.
  if (by.kind !== 'anthropic' || format?.type !== 'json' || format.schema !== undefined) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The model ${id} answers in JSON by a schema only; send one in ${param}.`,
    { param },
  );
}

const contentKinds: Record<string, string> = {
  image_url: 'image',
  input_audio: 'audio',
  video_url: 'video',
  file: 'file',
};

/** The same for a request in the chat-completions format. */
export function checkChatInputs(model: CatalogModel, messages: ChatCompletionRequest['messages']): void {
  for (const [index, message] of messages.entries()) {
    const { content } = message as { content?: unknown };
    if (!Array.isArray(content)) continue;
    for (const [position, part] of content.entries()) {
      const kind = contentKinds[String((part as { type?: unknown } | null)?.type)];
      if (kind !== undefined) requireInput(model, kind, `messages[${index}].content[${position}]`);
    }
  }
}

function kindOf(mediaType: string): string {
  const family = mediaType.split('/')[0] ?? '';
  return ['text', 'image', 'audio', 'video'].includes(family) ? family : 'file';
}

function requireInput(model: CatalogModel, kind: string, param: string): void {
  if (model.inputs === undefined || model.inputs.includes(kind)) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The model ${model.id} does not take ${kind} input; it takes ${model.inputs.join(', ')}.`,
    { param },
  );
}

/** Bytes of JSON that a model in this process reads of one call: it shares the event loop with all other calls. */
export const maxLocalInputBytes = 64 * 1024;

/** Throws a 422 that names the member with which the body of a call grows too long for a model in this process. */
export function checkLocalInput(model: CatalogModel, body: object): void {
  if (model.providerEntry.kind !== 'local') return;
  let left = maxLocalInputBytes;
  for (const [param, value] of Object.entries(body)) {
    left -= jsonLength(value, left);
    if (left >= 0) continue;
    throw new Problem(
      'impossible',
      'unsupported_by_model',
      `The model ${model.id} reads ${maxLocalInputBytes / 1024} KiB of prompt, tools and schemas at most; send less, or use a model of a provider.`,
      { param },
    );
  }
}

/** About the length of the value as JSON, in bytes. It stops above the limit, so it is cheap for a value of any size. */
function jsonLength(value: unknown, limit: number): number {
  let length = 0;
  const open = [value];
  while (open.length > 0 && length <= limit) {
    const next = open.pop();
    if (typeof next === 'string') length += next.length > limit ? next.length : Buffer.byteLength(next) + 2;
    else if (Array.isArray(next)) {
      length += next.length + 2;
      if (length <= limit) open.push(...(next as unknown[]));
    } else if (typeof next === 'object' && next !== null) {
      length += 2;
      for (const name in next) {
        length += Buffer.byteLength(name) + 4;
        if (length > limit) break;
        open.push((next as Record<string, unknown>)[name]);
      }
    } else length += 4;
  }
  return length;
}
