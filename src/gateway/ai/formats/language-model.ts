// The wire of `POST /v1/ai/stream`: versions 3 and 4 of the AI SDK's language-model specification, to and from the
// hub. It keeps the promised order (stream-start, response-metadata, balanced parts, exactly one finish) whatever a
// provider does, and lets only parts of the negotiated version through.
import type {
  StreamAnswer,
  StreamPart as WirePart,
  StreamRequest,
} from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import {
  type Answer,
  validTokenCount,
  type FinishReason,
  type ModelCall,
  type Prompt,
  type StreamPart,
  type Usage,
  type Warning,
} from '../hub/language-model.ts';

export type Version = '3' | '4';

type PromptPart = Extract<Prompt[number], { role: 'user' | 'assistant' | 'tool' }>['content'][number];
type ToolOutput = Extract<PromptPart, { type: 'tool-result' }>['output'];
type WireMessage = StreamRequest['prompt'][number];
type WireContent = Exclude<WireMessage['content'], string>[number];

/** The hub call that the request asks for. */
export function toModelCall(body: StreamRequest, effort: string | undefined, signal: AbortSignal): ModelCall {
  const {
    model: _model,
    reasoning_effort: _effort,
    reasoning: _reasoning,
    headers: _headers,
    prompt,
    tools,
    ...options
  } = body;
  const known = tools?.map((tool) =>
    tool.type === 'provider' ? { args: {}, ...tool } : tool,
  ) as ModelCall['tools'];
  return {
    ...(options as Omit<ModelCall, 'prompt' | 'reasoningEffort' | 'signal'>),
    ...(known === undefined ? {} : { tools: known }),
    prompt: prompt.map(messageOf),
    reasoningEffort: effort,
    signal,
    memberNames: { prompt: 'prompt', responseSchema: 'responseFormat.schema', toolSchema: 'inputSchema' },
  };
}

/** The effort that is asked for, by either of its names. Throws a 400 when the two differ. */
export function requestedEffort({ reasoning_effort: effort, reasoning }: StreamRequest): string | undefined {
  const common = reasoning === 'provider-default' ? undefined : reasoning;
  if (effort !== undefined && common !== undefined && effort !== common) {
    throw new Problem(
      'bad_request',
      'invalid_request',
      'The members reasoning_effort and reasoning say different things.',
      { param: 'reasoning' },
    );
  }
  return effort ?? common;
}

function messageOf(message: WireMessage): Prompt[number] {
  if (typeof message.content === 'string') return message as Prompt[number];
  return { ...message, content: message.content.map(promptPartOf) } as Prompt[number];
}

function promptPartOf(part: WireContent): PromptPart {
  if (part.type === 'file' || part.type === 'reasoning-file') {
    const { originalUrl: _originalUrl, ...rest } = part;
    return { ...rest, data: fileData(part.data) } as PromptPart;
  }
  if (part.type === 'tool-result')
    return { ...part, output: toolOutput(part.output as WireOutput) } as PromptPart;
  return part as PromptPart;
}

type FileData =
  | { type: 'url'; url: URL }
  | { type: 'data'; data: string }
  | Exclude<WireFileData, string | { type: 'url' }>;
type WireFileData = Extract<WireContent, { type: 'file' | 'reasoning-file' }>['data'];

// Version 3 has one text for bytes and addresses; only an address can begin like one.
function fileData(data: WireFileData): FileData {
  if (typeof data !== 'string') return data.type === 'url' ? addressed(data.url) : data;
  const inline = /^data:[^,]*;base64,/i.exec(data);
  if (inline) return { type: 'data', data: data.slice(inline[0].length) };
  return /^https?:\/\//i.test(data) && URL.canParse(data)
    ? { type: 'url', url: new URL(data) }
    : { type: 'data', data };
}

function addressed(url: string): FileData {
  if (!URL.canParse(url))
    throw new Problem('bad_request', 'invalid_request', 'The address of a file in the prompt is none.', {
      param: 'prompt',
    });
  return url.startsWith('data:') ? fileData(url) : { type: 'url', url: new URL(url) };
}

interface WireOutput {
  type: string;
  value?: unknown;
}

interface WireOutputPart {
  type: string;
  data?: string | object;
  url?: string;
  fileId?: string | Record<string, string>;
  mediaType?: string;
  filename?: string;
  providerOptions?: unknown;
}

function toolOutput(output: WireOutput): ToolOutput {
  if (output.type !== 'content') return output as ToolOutput;
  return { ...output, value: (output.value as WireOutputPart[]).map(outputPart) } as ToolOutput;
}

// `file-*` and `image-*` became one kind in version 4.
function outputPart(part: WireOutputPart): unknown {
  const [kind, source] = [part.type.split('-')[0], part.type.slice(part.type.indexOf('-') + 1)];
  if (part.type === 'file') return { ...part, data: fileData(part.data as WireFileData) };
  if (kind !== 'file' && kind !== 'image') return part;
  const { type: _type, data, url, fileId, ...rest } = part;
  const content =
    source === 'data'
      ? { type: 'data', data: data ?? '' }
      : source === 'url' && URL.canParse(url ?? '')
        ? { type: 'url', url: new URL(url ?? '') }
        : { type: 'reference', reference: typeof fileId === 'string' ? { default: fileId } : (fileId ?? {}) };
  return {
    mediaType: kind === 'image' ? 'image' : 'application/octet-stream',
    ...rest,
    type: 'file',
    data: content,
  };
}

export interface SerializeOptions {
  version: Version;
  /** Our name of the model that runs. */
  modelId: string;
  responseId: string;
  now: Date;
  /** The member `error` of a Problem for whatever was thrown; undefined when the caller is gone and hears nothing. */
  errorOf: (thrown: unknown) => Record<string, unknown> | undefined;
}

/** The parts for the wire, once the first that says something is there. Throws what fails before that. */
export async function serializeStream(
  parts: AsyncIterable<StreamPart>,
  options: SerializeOptions,
): Promise<AsyncIterable<WirePart>> {
  const source = parts[Symbol.asyncIterator]();
  const warnings: Warning[] = [];
  for (;;) {
    const next = await source.next();
    if (next.done === true) return ordered({ first: undefined, source, warnings }, options);
    const part = next.value;
    if (part.type === 'stream-start') warnings.push(...part.warnings);
    // Ours names our model; the provider's would name its own.
    else if (part.type === 'error') {
      await source.return?.();
      throw part.error;
    } else if (!isPrelude(part)) return ordered({ first: part, source, warnings }, options);
  }
}

// What a provider says before its model does; some of it would name the provider's own model.
function isPrelude(part: StreamPart): boolean {
  return (
    part.type === 'response-metadata' ||
    part.type === 'ping' ||
    (part.type === 'custom' && part.kind === 'anthropic.message_start')
  );
}

interface Begun {
  first: StreamPart | undefined;
  source: AsyncIterator<StreamPart>;
  warnings: Warning[];
}

async function* ordered(
  { first, source, warnings }: Begun,
  options: SerializeOptions,
): AsyncGenerator<WirePart> {
  const open = new Map<string, 'text-end' | 'reasoning-end' | 'tool-input-end'>();
  let usage: Usage | undefined;
  let thrown: unknown;
  let finish: Extract<StreamPart, { type: 'finish' }> | undefined;
  try {
    yield { type: 'stream-start', warnings: warnings.map((warning) => warningOf(warning, options.version)) };
    yield {
      type: 'response-metadata',
      id: options.responseId,
      timestamp: options.now.toISOString(),
      modelId: options.modelId,
    };
    try {
      for (let part = first; part !== undefined && finish === undefined;) {
        if (part.type === 'finish') {
          finish = part;
          break;
        }
        if (part.type === 'error') thrown ??= part.error;
        // After an error only the usage of the finish is of interest.
        const wire = thrown === undefined ? wirePart(part, open, options.version) : undefined;
        if (wire !== undefined) yield wire;
        const next = await source.next();
        part = next.done === true ? undefined : next.value;
      }
    } catch (error) {
      thrown ??= error;
    }
    usage = finish?.usage;
    for (const [id, type] of open) yield { type, id };
    if (finish === undefined || thrown !== undefined) {
      const error = options.errorOf(
        thrown ??
          new Problem(
            'upstream_failed',
            'upstream_truncated',
            'The model broke off before its answer was complete.',
          ),
      );
      // The caller is gone: there is nobody to end the stream for.
      if (error === undefined) return;
      yield { type: 'error', error: error as Extract<WirePart, { type: 'error' }>['error'] };
      yield { type: 'finish', finishReason: { unified: 'error' }, usage: usageOf(usage) };
      return;
    }
    const metadata =
      finish.providerMetadata === undefined
        ? {}
        : { providerMetadata: finish.providerMetadata as Record<string, Record<string, unknown>> };
    yield {
      type: 'finish',
      finishReason: finishOf(finish.finishReason, options.version),
      usage: usageOf(usage),
      ...metadata,
    };
  } finally {
    await source.return?.();
  }
}

// One part as the version has it, or undefined for what it has not. Parts of a block that is not open are dropped and
// edges that are missing are not repeated, so that blocks stay balanced.
function wirePart(part: StreamPart, open: Map<string, string>, version: Version): WirePart | undefined {
  switch (part.type) {
    case 'text-start':
    case 'reasoning-start':
    case 'tool-input-start': {
      if (open.has(part.id)) return undefined;
      open.set(part.id, part.type.replace('start', 'end'));
      return newer(part, version, 'inputEncoding') as WirePart;
    }
    case 'text-delta':
    case 'reasoning-delta':
    case 'tool-input-delta':
      return open.has(part.id) ? (part as WirePart) : undefined;
    case 'text-end':
    case 'reasoning-end':
    case 'tool-input-end':
      return open.delete(part.id) ? (newer(part, version, 'citations') as WirePart) : undefined;
    case 'raw':
      return part as WirePart;
    case 'tool-call':
    case 'tool-result':
    case 'tool-approval-request':
    case 'source':
    case 'file':
    case 'reasoning-file':
    case 'custom':
      return contentOf(part, version) as WirePart | undefined;
    default:
      return undefined;
  }
}

// Without a member that came with version 4.
function newer<Part extends object>(part: Part, version: Version, member: string): Part {
  if (version === '4' || !(member in part)) return part;
  return Object.fromEntries(Object.entries(part).filter(([name]) => name !== member)) as Part;
}

type HubContent = Answer['content'][number];

// A whole piece of content as the version has it. Version 3 knows no files of reasoning, no custom content, and files
// by their bytes alone.
function contentOf(content: HubContent, version: Version): object | undefined {
  switch (content.type) {
    case 'file':
    case 'reasoning-file': {
      const data =
        content.data.type === 'data'
          ? { ...content.data, data: base64(content.data.data) }
          : { ...content.data, url: String(content.data.url) };
      if (version === '4') return { ...content, data };
      return content.type === 'file' && data.type === 'data' ? { ...content, data: data.data } : undefined;
    }
    case 'custom':
      return version === '4' ? content : undefined;
    case 'text':
      return newer(content, version, 'citations');
    default:
      return content;
  }
}

/** A whole answer, for a caller who does not stream. */
export function serializeAnswer(
  answer: Answer,
  { version, modelId, responseId, now }: Omit<SerializeOptions, 'errorOf'>,
): StreamAnswer {
  return {
    content: answer.content.flatMap(
      (content) => contentOf(content, version) ?? [],
    ) as StreamAnswer['content'],
    finishReason: finishOf(answer.finishReason, version),
    usage: usageOf(answer.usage),
    warnings: answer.warnings.map((warning) => warningOf(warning, version)),
    response: { id: responseId, timestamp: now.toISOString(), modelId },
    ...(answer.providerMetadata === undefined
      ? {}
      : { providerMetadata: answer.providerMetadata as NonNullable<StreamAnswer['providerMetadata']> }),
  };
}

function base64(data: string | Uint8Array): string {
  return typeof data === 'string' ? data : Buffer.from(data).toString('base64');
}

// `deprecated` came with version 4.
function warningOf(warning: Warning, version: Version): { type: string } & Record<string, unknown> {
  return warning.type === 'deprecated' && version === '3'
    ? { type: 'other', message: `${warning.setting}: ${warning.message}` }
    : warning;
}

// `interrupted` came with version 4.
function finishOf(
  { unified, raw }: FinishReason,
  version: Version,
): Extract<WirePart, { type: 'finish' }>['finishReason'] {
  return {
    unified: unified === 'interrupted' && version === '3' ? 'error' : unified,
    ...(raw === undefined ? {} : { raw }),
  };
}

function usageOf(usage: Usage | undefined): Extract<WirePart, { type: 'finish' }>['usage'] {
  const { inputTokens, outputTokens } = usage ?? { inputTokens: {}, outputTokens: {} };
  return {
    inputTokens: counts(inputTokens),
    outputTokens: counts(outputTokens),
    ...(usage?.raw === undefined ? {} : { raw: usage.raw }),
  };
}

function counts(given: Readonly<Record<string, number | undefined>>): Record<string, number> {
  const known: Record<string, number> = {};
  for (const [kind, count] of Object.entries(given)) {
    const counted = validTokenCount(count);
    if (counted !== undefined) known[kind] = counted;
  }
  return known;
}
