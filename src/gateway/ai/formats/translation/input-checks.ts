// Checks the input of a call against the model: its media types, its answer format,
// and the input limit of a local model. A model without `inputs` in its catalog
// entry is not checked here; its provider checks the input.
import type { ChatCompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ModelCall, Prompt } from '../../hub/language-model.ts';
import { approximateJsonBytes } from './json-size.ts';
import { adapterOf } from '../../providers/adapters.ts';
import { readString } from './members.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/**
 * Throws a 422 for a file that the model does not accept. `name` is the caller's
 * name for the prompt, which the error uses.
 */
export function checkPromptInputs(model: CatalogModel, prompt: Prompt, name = 'prompt'): void {
  for (const [index, message] of prompt.entries()) {
    if (typeof message.content === 'string') continue;
    for (const [partIndex, part] of message.content.entries()) {
      const path = `${name}[${index}].content[${partIndex}]`;
      if (part.type === 'file') requireInput(model, inputKind(part.mediaType), path);
      if (part.type !== 'tool-result' || part.output.type !== 'content') continue;
      for (const [valueIndex, item] of part.output.value.entries()) {
        if (item.type === 'file')
          requireInput(model, inputKind(item.mediaType), `${path}.output.value[${valueIndex}]`);
      }
    }
  }
}

/**
 * Throws a 422 that names `param` for a JSON answer without a schema, if the model's provider requires one.
 */
export function checkAnswerFormat(
  model: Pick<CatalogModel, 'id' | 'providerEntry'>,
  format: ModelCall['responseFormat'],
  param: string,
): void {
  if (format?.type !== 'json' || format.schema !== undefined || adapterOf(model).needsAnswerSchema !== true)
    return;
  throw unsupportedMember(
    param,
    `The model ${model.id} answers in JSON only with a schema; send a schema in ${param}.`,
  );
}

const contentKinds = new Map([
  ['image_url', 'image'],
  ['input_audio', 'audio'],
  ['video_url', 'video'],
  ['file', 'file'],
]);

/**
 * `checkPromptInputs` for the messages of a chat-completions request. Throws a 400
 * for a part whose type is not a string.
 */
export function checkChatInputs(model: CatalogModel, messages: ChatCompletionRequest['messages']): void {
  for (const [index, message] of messages.entries()) {
    const { content } = message as { content?: unknown };
    if (!Array.isArray(content)) continue;
    for (const [partIndex, part] of content.entries()) {
      const path = `messages[${index}].content[${partIndex}]`;
      const { type } = (part ?? {}) as { type?: unknown };
      const kind = type === undefined ? undefined : contentKinds.get(readString(type, `${path}.type`));
      if (kind !== undefined) requireInput(model, kind, path);
    }
  }
}

/**
 * Throws a 422 for a file of a media type that the model does not accept; `path` is where the caller sent it.
 */
export function checkInputType(model: CatalogModel, mediaType: string, path: string): void {
  requireInput(model, inputKind(mediaType), path);
}

function inputKind(mediaType: string): string {
  const family = mediaType.split('/')[0] ?? '';
  return ['text', 'image', 'audio', 'video'].includes(family) ? family : 'file';
}

function requireInput(model: CatalogModel, kind: string, param: string): void {
  if (model.inputs === undefined || model.inputs.includes(kind)) return;
  throw unsupportedMember(
    param,
    `The model ${model.id} does not take ${kind} input; it takes ${model.inputs.join(', ')}.`,
  );
}

/** Longest input of a local model, as JSON. Local models share the event loop with all other calls. */
export const maxLocalInputBytes = 64 * 1024;

/** Throws a 422 when the body is too long for a local model; it names the member that exceeds the limit. */
export function checkLocalInput(model: CatalogModel, body: object): void {
  if (adapterOf(model).isLocal !== true) return;
  let remainingBytes = maxLocalInputBytes;
  for (const [param, value] of Object.entries(body)) {
    remainingBytes -= approximateJsonBytes(value, remainingBytes);
    if (remainingBytes >= 0) continue;
    throw unsupportedMember(
      param,
      `The model ${model.id} reads ${maxLocalInputBytes / 1024} KiB of prompt, tools and schemas at ` +
        'most; send less, or use a model of a provider.',
    );
  }
}
