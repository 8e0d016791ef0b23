// Where each format has content parts, and which of their types are media. A part is a medium only at these
// places, and only its listed members are the medium; all its other members are text.
import type { PassthroughFormatName } from '../providers/adapter/provider-adapter.ts';

/**
 * The format of a request: the pass-through formats, `text` for /v1/ai/text, and `stream` for the AI SDK's
 * language model format.
 */
export type RequestFormat = PassthroughFormatName | 'text' | 'stream';

export type MediumKind = 'image' | 'audio' | 'video' | 'file';

/** One medium of a request. */
export interface MediumSource {
  kind: MediumKind;
  /** Base64 data, a data URL, a URL, or the provider's id of a file. */
  text: string;
  /** Whether the member is for data, and not for a URL or an id. */
  isData: boolean;
  /** The declared media type, where the format has a member for it. */
  mediaType: string | undefined;
}

type Part = Readonly<Record<string, unknown>>;

/** Where a part of one type has its medium, as paths of members such as `source.data`. */
interface MediumPaths {
  kind: MediumKind;
  data?: readonly string[];
  references?: readonly string[];
  /** The member that declares the media type. */
  mediaType?: string;
  /** The member that is `text` when the part holds plain text instead of a medium. */
  sourceType?: string;
}

type PathsByType = Readonly<Record<string, MediumPaths>>;

const chat: PathsByType = {
  image_url: { kind: 'image', references: ['image_url.url', 'image_url'] },
  input_audio: { kind: 'audio', data: ['input_audio.data'] },
  audio_url: { kind: 'audio', references: ['audio_url.url', 'audio_url'] },
  video_url: { kind: 'video', references: ['video_url.url', 'video_url'] },
  document_url: { kind: 'file', references: ['document_url.url', 'document_url'] },
  file: { kind: 'file', data: ['file.file_data'], references: ['file.file_id'] },
};

const anthropicSource = {
  data: ['source.data'],
  references: ['source.url', 'source.file_id'],
  mediaType: 'source.media_type',
  sourceType: 'source.type',
};
const messages: PathsByType = {
  image: { kind: 'image', ...anthropicSource },
  document: { kind: 'file', ...anthropicSource },
};

const responses: PathsByType = {
  input_image: { kind: 'image', references: ['image_url', 'file_id'] },
  computer_screenshot: { kind: 'image', references: ['image_url', 'file_id'] },
  input_audio: { kind: 'audio', data: ['input_audio.data'] },
  input_file: { kind: 'file', data: ['file_data'], references: ['file_url', 'file_id'] },
};

const textSource = { data: ['data'], references: ['url'], mediaType: 'media_type' };
const text: PathsByType = { image: { kind: 'image', ...textSource }, file: { kind: 'file', ...textSource } };

const streamFile: MediumPaths = {
  kind: 'file',
  data: ['data', 'data.data'],
  references: ['data.url', 'data.reference'],
  mediaType: 'mediaType',
  sourceType: 'data.type',
};
const stream: PathsByType = {
  file: streamFile,
  'reasoning-file': streamFile,
  'file-data': { kind: 'file', data: ['data'], mediaType: 'mediaType' },
  'file-url': { kind: 'file', references: ['url'], mediaType: 'mediaType' },
  'file-id': { kind: 'file', references: ['fileId'], mediaType: 'mediaType' },
  'image-data': { kind: 'image', data: ['data'], mediaType: 'mediaType' },
  'image-url': { kind: 'image', references: ['url'], mediaType: 'mediaType' },
  'image-file-id': { kind: 'image', references: ['fileId'], mediaType: 'mediaType' },
};

type Body = Readonly<Record<string, unknown>>;

const formats: Readonly<
  Record<RequestFormat, { types: PathsByType; parts: (body: Body) => Iterable<Part> }>
> = {
  chat: { types: chat, parts: ({ messages: turns }) => contentsOf(turns) },
  completions: { types: chat, parts: () => [] },
  messages: { types: messages, parts: ({ messages: turns }) => withNested(contentsOf(turns)) },
  responses: { types: responses, parts: responseParts },
  embeddings: {
    types: chat,
    parts: ({ input, messages: turns }) => [...objectsIn(input), ...contentsOf(input), ...contentsOf(turns)],
  },
  moderations: { types: chat, parts: ({ input }) => objectsIn(input) },
  rerank: { types: chat, parts: ({ documents }) => [...objectsIn(documents), ...contentsOf(documents)] },
  text: { types: text, parts: ({ messages: turns }) => contentsOf(turns) },
  stream: { types: stream, parts: ({ prompt }) => withToolOutputs(contentsOf(prompt)) },
};

/** The media of the request. Every string of the body is in at most one of them. */
export function* mediaSources(body: object, format: RequestFormat): Generator<MediumSource> {
  const { types, parts } = formats[format];
  for (const part of parts(body as Body)) {
    const { type } = part;
    const paths = typeof type === 'string' && Object.hasOwn(types, type) ? types[type] : undefined;
    if (paths !== undefined) yield* sourcesOf(part, paths);
  }
}

function* sourcesOf(
  part: Part,
  { kind, data = [], references = [], mediaType: declaredAt, sourceType }: MediumPaths,
): Generator<MediumSource> {
  if (sourceType !== undefined && valueAt(part, sourceType) === 'text') return;
  const declaredType = declaredAt === undefined ? undefined : valueAt(part, declaredAt);
  const mediaType = typeof declaredType === 'string' ? declaredType : undefined;
  for (const path of [...data, ...references]) {
    const value = valueAt(part, path);
    if (typeof value === 'string') yield { kind, text: value, isData: data.includes(path), mediaType };
    // A reference is an object that has the provider's id of a file under the provider's name.
    else if (isObject(value) && path.endsWith('reference'))
      yield { kind, text: '', isData: false, mediaType };
  }
}

/** The items of a list that are objects; empty for anything else. */
export function objectsIn(value: unknown): Part[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function contentsOf(turns: unknown): Part[] {
  return objectsIn(turns).flatMap(({ content }) => objectsIn(content));
}

// Parts of tool results, and of documents with a `source` of the type `content`.
function withNested(parts: readonly Part[]): Part[] {
  return parts.flatMap((part) => {
    if (part['type'] === 'tool_result') return withNested(objectsIn(part['content']));
    if (part['type'] === 'document' && valueAt(part, 'source.type') === 'content')
      return objectsIn(valueAt(part, 'source.content'));
    return [part];
  });
}

function withToolOutputs(parts: readonly Part[]): Part[] {
  return parts.flatMap((part) => {
    if (part['type'] !== 'tool-result') return [part];
    return valueAt(part, 'output.type') === 'content' ? objectsIn(valueAt(part, 'output.value')) : [];
  });
}

const outputTypes = new Set<unknown>([
  'function_call_output',
  'custom_tool_call_output',
  'computer_call_output',
]);

function responseParts({ instructions, input, prompt }: Body): Part[] {
  const variables =
    isObject(prompt) && isObject(prompt['variables']) ? Object.values(prompt['variables']) : [];
  const items = [...objectsIn(instructions), ...objectsIn(input)].flatMap((item) => {
    const { type, content, output } = item;
    if (outputTypes.has(type)) return isObject(output) ? [output] : objectsIn(output);
    // The type of a message may also be null or absent.
    return (type ?? 'message') === 'message' ? objectsIn(content) : [];
  });
  return [...items, ...variables.filter(isObject)];
}

function valueAt(part: Part, path: string): unknown {
  let value: unknown = part;
  for (const name of path.split('.'))
    value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
  return value;
}

function isObject(value: unknown): value is Part {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
