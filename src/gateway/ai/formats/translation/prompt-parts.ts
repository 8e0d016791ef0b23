// The common part of the translations of several formats: their options, the parts of a prompt with their
// checks, and the tool names by the ids of their calls.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ToolOutput, UserPart } from '../../hub/language-model.ts';
import { parseDataUrl } from '../../media/data-url.ts';
import { invalidMember, readString } from './members.ts';
import type { DroppedHints } from './dropped-hints.ts';
import { checkInputType } from './input-checks.ts';

type FileSource = Omit<Extract<UserPart, { type: 'file' }>, 'type' | 'providerOptions'>;

/** The model that receives the prompt, and the collector of the hints that it does not receive. */
export interface PromptContext {
  model: CatalogModel;
  hints: DroppedHints;
}

/** The options in which the translations of one request for several models differ. */
export interface TranslateOptions extends PromptContext {
  effort: string | undefined;
  signal: AbortSignal;
}

/**
 * A file at a URL, or in a base64 data URL. Throws a 400 for any other string, and a 422 for a media type
 * that the model does not accept.
 */
export function fileOfUrl(
  model: CatalogModel,
  url: string,
  { path, mediaType }: { path: string; mediaType: string },
): FileSource {
  const inlineData = parseDataUrl(url);
  if (inlineData !== undefined && inlineData.mediaType !== '')
    return fileOfData(model, inlineData.data, { path, mediaType: inlineData.mediaType });
  return fileOfAddress(model, url, {
    path,
    mediaType,
    accepts: 'a data URL in base64 or an http or https address',
  });
}

/** A file at an http or https address. Throws like `fileOfUrl`. */
export function fileOfAddress(
  model: CatalogModel,
  url: string,
  {
    path,
    mediaType,
    accepts = 'an http or https address',
  }: { path: string; mediaType: string; accepts?: string },
): FileSource {
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) throw invalidMember(path, `must be ${accepts}`);
  checkInputType(model, mediaType, path);
  return { mediaType, data: { type: 'url', url: new URL(url) } };
}

/** A file in base64. Throws a 422 for a media type that the model does not accept. */
export function fileOfData(
  model: CatalogModel,
  data: string,
  { path, mediaType }: { path: string; mediaType: string },
): FileSource {
  checkInputType(model, mediaType, path);
  return { mediaType, data: { type: 'data', data } };
}

/**
 * Tool names by the ids of their calls. A tool result has only the id, but the hub requires the name too.
 */
export class ToolNames {
  readonly #names = new Map<string, string>();

  add(callId: string, toolName: string): void {
    this.#names.set(callId, toolName);
  }

  /** Throws a 400 for an id that no earlier call has. */
  find(value: unknown, path: string): { toolCallId: string; toolName: string } {
    const toolCallId = readString(value, path);
    const toolName = this.#names.get(toolCallId);
    if (toolName === undefined) throw invalidMember(path, 'names no tool call of an earlier message');
    return { toolCallId, toolName };
  }
}

/** The result of a tool: one string if all parts are text, otherwise the parts. */
export function toToolOutput(parts: readonly UserPart[], isError = false): ToolOutput {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  if (texts.length === parts.length)
    return { type: isError ? 'error-text' : 'text', value: texts.join('\n') };
  return {
    type: 'content',
    value: parts.map((part) => {
      if (part.type === 'text') return { type: 'text', text: part.text };
      const { data, mediaType, filename } = part;
      return { type: 'file', data, mediaType, ...(filename === undefined ? {} : { filename }) };
    }),
  };
}
