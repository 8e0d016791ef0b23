// The format of `POST /v1/ai/stream`: versions 3 and 4 of the AI SDK's language-model specification.
// Whatever a provider sends, the stream keeps the order of the specification (stream-start,
// response-metadata, balanced parts, exactly one finish), and only parts of the negotiated version pass.
import type {
  CallWarning,
  StreamAnswer,
  StreamPart as SpecPart,
  StreamRequest,
} from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import {
  type Answer,
  validTokenCount,
  type FinishReason,
  type ModelCall,
  type StreamPart,
  type Usage,
  type Warning,
  type AssistantPart,
  type PromptMessage,
  type ToolOutput,
  type ToolPart,
  type UserPart,
} from '../hub/language-model.ts';
import { readList } from './translation/members.ts';
import { toFileData, toOutputPart } from './prompt-files.ts';
import { truncatedAnswer } from './translation/finish.ts';
import type { SpecContent, SpecMessage } from './translation/spec-prompt.ts';

export type Version = '3' | '4';

type PromptPart = UserPart | AssistantPart | ToolPart;

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
  const hubTools = tools?.map((tool) =>
    tool.type === 'provider' ? { args: {}, ...tool } : tool,
  ) as ModelCall['tools'];
  return {
    ...(options as Omit<ModelCall, 'prompt' | 'reasoningEffort' | 'signal'>),
    ...(hubTools === undefined ? {} : { tools: hubTools }),
    prompt: prompt.map((message, index) => toPromptMessage(message, `prompt[${index}]`)),
    reasoningEffort: effort,
    signal,
    memberNames: { prompt: 'prompt', responseSchema: 'responseFormat.schema', toolSchema: 'inputSchema' },
  };
}

/** The reasoning effort under either of its two member names. Throws a 400 when they differ. */
export function requestedEffort({ reasoning_effort: effort, reasoning }: StreamRequest): string | undefined {
  const commonEffort = reasoning === 'provider-default' ? undefined : reasoning;
  if (effort !== undefined && commonEffort !== undefined && effort !== commonEffort) {
    throw new Problem(
      'bad_request',
      'invalid_request',
      'The members reasoning_effort and reasoning differ; send one of them.',
      { param: 'reasoning' },
    );
  }
  return effort ?? commonEffort;
}

function toPromptMessage(message: SpecMessage, path: string): PromptMessage {
  if (typeof message.content === 'string') return message as PromptMessage;
  const content = message.content.map((part, index) => toPromptPart(part, `${path}.content[${index}]`));
  return { ...message, content } as PromptMessage;
}

function toPromptPart(part: SpecContent, path: string): PromptPart {
  if (part.type === 'file' || part.type === 'reasoning-file') {
    const { originalUrl: _originalUrl, ...sentPart } = part;
    return { ...sentPart, data: toFileData(part.data, `${path}.data`) } as PromptPart;
  }
  if (part.type === 'tool-result')
    return { ...part, output: toToolOutput(part.output as SpecOutput, `${path}.output`) } as PromptPart;
  return part as PromptPart;
}

interface SpecOutput {
  type: string;
  value?: unknown;
}

function toToolOutput(output: SpecOutput, path: string): ToolOutput {
  if (output.type !== 'content') return output as ToolOutput;
  const value = readList(output.value, `${path}.value`).map((part, index) =>
    toOutputPart(part, `${path}.value[${index}]`),
  );
  return { ...output, value } as ToolOutput;
}

export interface SerializeOptions {
  version: Version;
  /** The catalog's id of the called model. */
  modelId: string;
  responseId: string;
  now: Date;
  /** Renders an error as the member `error` of a Problem; undefined when the caller has disconnected. */
  renderError: (error: unknown) => Record<string, unknown> | undefined;
}

/**
 * Resolves at the first part with content. Throws an earlier failure, so that it still gets an HTTP status.
 */
export async function serializeStream(
  parts: AsyncIterable<StreamPart>,
  options: SerializeOptions,
): Promise<AsyncIterable<SpecPart>> {
  const source = parts[Symbol.asyncIterator]();
  const warnings: Warning[] = [];
  for (;;) {
    const part = await readNextPart(source);
    if (part?.type === 'error') {
      await source.return?.();
      throw part.error;
    }
    if (part?.type === 'stream-start') warnings.push(...part.warnings);
    else if (part === undefined || !isPrelude(part))
      return serializeParts({ first: part, source, warnings }, options);
  }
}

// Parts that providers send before their model's answer. They are dropped, as they
// may name the provider's own model.
function isPrelude(part: StreamPart): boolean {
  return (
    part.type === 'response-metadata' ||
    part.type === 'ping' ||
    (part.type === 'custom' && part.kind === 'anthropic.message_start')
  );
}

async function readNextPart(source: AsyncIterator<StreamPart>): Promise<StreamPart | undefined> {
  const next = await source.next();
  return next.done === true ? undefined : next.value;
}

interface StartedStream {
  /** Undefined when the provider sent no content. */
  first: StreamPart | undefined;
  source: AsyncIterator<StreamPart>;
  warnings: Warning[];
}

// Blocks that have started and not ended, by id, with the type of the part that ends them.
type OpenBlocks = Map<string, 'text-end' | 'reasoning-end' | 'tool-input-end'>;

type FinishPart = Extract<StreamPart, { type: 'finish' }>;
type StreamOutcome =
  | { type: 'finished'; finish: FinishPart }
  | { type: 'failed'; error: unknown; usage: Usage | undefined };

async function* serializeParts(
  { first, source, warnings }: StartedStream,
  options: SerializeOptions,
): AsyncGenerator<SpecPart> {
  const { version, responseId, modelId, now } = options;
  const openBlocks: OpenBlocks = new Map();
  try {
    yield { type: 'stream-start', warnings: warnings.map((warning) => toSpecWarning(warning, version)) };
    yield { type: 'response-metadata', id: responseId, timestamp: now.toISOString(), modelId };
    const outcome = yield* readContentParts(first, source, { openBlocks, version });
    for (const [id, type] of openBlocks) yield { type, id };
    if (outcome.type === 'finished') yield toFinishPart(outcome.finish, version);
    else yield* failureParts(outcome, options);
  } finally {
    await source.return?.();
  }
}

// Yields the content and returns how it ended. After an error it reads on without yielding, because the
// `finish` part still reports the usage.
async function* readContentParts(
  first: StreamPart | undefined,
  source: AsyncIterator<StreamPart>,
  { openBlocks, version }: { openBlocks: OpenBlocks; version: Version },
): AsyncGenerator<SpecPart, StreamOutcome> {
  let failure: { error: unknown } | undefined;
  try {
    for (let part = first; part !== undefined; part = await readNextPart(source)) {
      if (part.type === 'finish')
        return failure === undefined
          ? { type: 'finished', finish: part }
          : { type: 'failed', error: failure.error, usage: part.usage };
      if (part.type === 'error') failure ??= { error: part.error };
      const specPart = failure === undefined ? toSpecPart(part, openBlocks, version) : undefined;
      if (specPart !== undefined) yield specPart;
    }
  } catch (error) {
    failure ??= { error };
  }
  failure ??= { error: truncatedAnswer() };
  return { type: 'failed', error: failure.error, usage: undefined };
}

function* failureParts(
  { error, usage }: Extract<StreamOutcome, { type: 'failed' }>,
  { renderError }: SerializeOptions,
): Generator<SpecPart> {
  const body = renderError(error);
  if (body === undefined) return;
  yield { type: 'error', error: body as Extract<SpecPart, { type: 'error' }>['error'] };
  yield { type: 'finish', finishReason: { unified: 'error' }, usage: toSpecUsage(usage) };
}

function toFinishPart({ finishReason, usage, providerMetadata }: FinishPart, version: Version): SpecPart {
  return {
    type: 'finish',
    finishReason: toSpecFinishReason(finishReason, version),
    usage: toSpecUsage(usage),
    ...(providerMetadata === undefined
      ? {}
      : { providerMetadata: providerMetadata as Record<string, Record<string, unknown>> }),
  };
}

// The part in the given version; undefined if the version lacks it. To keep blocks balanced,
// a second start of a block is dropped, and so are deltas and ends of a block that is not open.
function toSpecPart(part: StreamPart, openBlocks: OpenBlocks, version: Version): SpecPart | undefined {
  switch (part.type) {
    case 'text-start':
    case 'reasoning-start':
    case 'tool-input-start': {
      if (openBlocks.has(part.id)) return undefined;
      openBlocks.set(
        part.id,
        part.type.replace('start', 'end') as 'text-end' | 'reasoning-end' | 'tool-input-end',
      );
      return withoutNewerMember(part, version, 'inputEncoding') as SpecPart;
    }
    case 'text-delta':
    case 'reasoning-delta':
    case 'tool-input-delta':
      return openBlocks.has(part.id) ? (part as SpecPart) : undefined;
    case 'text-end':
    case 'reasoning-end':
    case 'tool-input-end':
      return openBlocks.delete(part.id)
        ? (withoutNewerMember(part, version, 'citations') as SpecPart)
        : undefined;
    case 'raw':
      return part as SpecPart;
    case 'tool-call':
    case 'tool-result':
    case 'tool-approval-request':
    case 'source':
    case 'file':
    case 'reasoning-file':
    case 'custom':
      return toSpecContent(part, version) as SpecPart | undefined;
    default:
      return undefined;
  }
}

// Removes a member that only version 4 has from a part of version 3.
function withoutNewerMember<Part extends object>(part: Part, version: Version, member: string): Part {
  if (version === '4' || !(member in part)) return part;
  return Object.fromEntries(Object.entries(part).filter(([name]) => name !== member)) as Part;
}

type HubContent = Answer['content'][number];

// The content in the given version; undefined if the version lacks it. Version 3 has no reasoning files and
// no custom content, and its files contain bytes, never a URL.
function toSpecContent(content: HubContent, version: Version): object | undefined {
  switch (content.type) {
    case 'file':
    case 'reasoning-file': {
      const data =
        content.data.type === 'data'
          ? { ...content.data, data: toBase64(content.data.data) }
          : { ...content.data, url: String(content.data.url) };
      if (version === '4') return { ...content, data };
      return content.type === 'file' && data.type === 'data' ? { ...content, data: data.data } : undefined;
    }
    case 'custom':
      return version === '4' ? content : undefined;
    case 'text':
      return withoutNewerMember(content, version, 'citations');
    default:
      return content;
  }
}

/** A whole answer, for callers that do not stream. */
export function serializeAnswer(
  answer: Answer,
  { version, modelId, responseId, now }: Omit<SerializeOptions, 'renderError'>,
): StreamAnswer {
  return {
    content: answer.content.flatMap(
      (content) => toSpecContent(content, version) ?? [],
    ) as StreamAnswer['content'],
    finishReason: toSpecFinishReason(answer.finishReason, version),
    usage: toSpecUsage(answer.usage),
    warnings: answer.warnings.map((warning) => toSpecWarning(warning, version)),
    response: { id: responseId, timestamp: now.toISOString(), modelId },
    ...(answer.providerMetadata === undefined
      ? {}
      : { providerMetadata: answer.providerMetadata as NonNullable<StreamAnswer['providerMetadata']> }),
  };
}

function toBase64(data: string | Uint8Array): string {
  return typeof data === 'string' ? data : Buffer.from(data).toString('base64');
}

// Version 3 has no warning of the type `deprecated`.
function toSpecWarning(warning: Warning, version: Version): CallWarning {
  return warning.type === 'deprecated' && version === '3'
    ? { type: 'other', message: `${warning.setting}: ${warning.message}` }
    : warning;
}

// Version 3 has no finish reason `interrupted`.
function toSpecFinishReason(
  { unified, raw }: FinishReason,
  version: Version,
): Extract<SpecPart, { type: 'finish' }>['finishReason'] {
  return {
    unified: unified === 'interrupted' && version === '3' ? 'error' : unified,
    ...(raw === undefined ? {} : { raw }),
  };
}

function toSpecUsage(usage: Usage | undefined): Extract<SpecPart, { type: 'finish' }>['usage'] {
  const { inputTokens, outputTokens } = usage ?? { inputTokens: {}, outputTokens: {} };
  return {
    inputTokens: validCounts(inputTokens),
    outputTokens: validCounts(outputTokens),
    ...(usage?.raw === undefined ? {} : { raw: usage.raw }),
  };
}

function validCounts(counts: Readonly<Record<string, number | undefined>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(counts).flatMap(([kind, count]) => {
      const validCount = validTokenCount(count);
      return validCount === undefined ? [] : [[kind, validCount]];
    }),
  );
}
