// The wire of `POST /v1/ai/stream`: version 3 of the AI SDK's language-model specification, to and from the hub.
// It keeps the promised order (stream-start, response-metadata, balanced parts, exactly one finish) whatever a
// provider does, and lets only part types of version 3 through.
import type { StreamPart as WirePart, StreamRequest } from '../../contract/gateway/types.gen.ts';
import { Problem } from '../../kernel/problem.ts';
import { tokenCount, type FinishReason, type ModelCall, type Prompt, type StreamPart, type Usage, type Warning } from './model.ts';

type PromptPart = Extract<Prompt[number], { role: 'user' | 'assistant' | 'tool' }>['content'][number];
type ToolOutput = Extract<PromptPart, { type: 'tool-result' }>['output'];
type WireMessage = StreamRequest['prompt'][number];
type WireContent = Exclude<WireMessage['content'], string>[number];

/** The hub call that the request asks for. */
export function callOf(body: StreamRequest, effort: string | undefined, signal: AbortSignal): ModelCall {
  const { model: _model, reasoning_effort: _effort, prompt, ...options } = body;
  return { ...(options as Omit<ModelCall, 'prompt' | 'reasoningEffort' | 'signal'>), prompt: prompt.map(messageOf), reasoningEffort: effort, signal };
}

function messageOf(message: WireMessage): Prompt[number] {
  if (typeof message.content === 'string') return message as Prompt[number];
  return { ...message, content: message.content.map(promptPartOf) } as Prompt[number];
}

function promptPartOf(part: WireContent): PromptPart {
  if (part.type === 'file') return { ...part, data: fileData(part.data) } as PromptPart;
  if (part.type === 'tool-result') return { ...part, output: toolOutput(part.output as WireOutput) } as PromptPart;
  return part as PromptPart;
}

// Version 3 has one text for both; only an address can begin like one.
function fileData(data: string): { type: 'url'; url: URL } | { type: 'data'; data: string } {
  return /^https?:\/\//i.test(data) && URL.canParse(data) ? { type: 'url', url: new URL(data) } : { type: 'data', data };
}

interface WireOutput {
  type: string;
  value?: unknown;
}

interface WireOutputPart {
  type: string;
  data?: string;
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
  if (kind !== 'file' && kind !== 'image') return part;
  const { type: _type, data, url, fileId, ...rest } = part;
  const content =
    source === 'data'
      ? { type: 'data', data: data ?? '' }
      : source === 'url' && URL.canParse(url ?? '')
        ? { type: 'url', url: new URL(url ?? '') }
        : { type: 'reference', reference: typeof fileId === 'string' ? { default: fileId } : (fileId ?? {}) };
  return { mediaType: kind === 'image' ? 'image' : 'application/octet-stream', ...rest, type: 'file', data: content };
}

export interface WireOptions {
  /** Our name of the model that runs. */
  modelId: string;
  responseId: string;
  now: Date;
  /** The member `error` of a Problem for whatever was thrown; undefined when the caller is gone and hears nothing. */
  errorOf: (thrown: unknown) => Record<string, unknown> | undefined;
}

/** The parts for the wire, once the first that says something is there. Throws what fails before that. */
export async function wireParts(parts: AsyncIterable<StreamPart>, options: WireOptions): Promise<AsyncIterable<WirePart>> {
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
    } else if (part.type !== 'response-metadata' && part.type !== 'ping') return ordered({ first: part, source, warnings }, options);
  }
}

interface Begun {
  first: StreamPart | undefined;
  source: AsyncIterator<StreamPart>;
  warnings: Warning[];
}

async function* ordered({ first, source, warnings }: Begun, options: WireOptions): AsyncGenerator<WirePart> {
  const open = new Map<string, 'text-end' | 'reasoning-end' | 'tool-input-end'>();
  let usage: Usage | undefined;
  let thrown: unknown;
  let finish: Extract<StreamPart, { type: 'finish' }> | undefined;
  try {
    yield { type: 'stream-start', warnings: warnings.map(warningOf) };
    yield { type: 'response-metadata', id: options.responseId, timestamp: options.now.toISOString(), modelId: options.modelId };
    try {
      for (let part = first; part !== undefined && finish === undefined; ) {
        if (part.type === 'finish') {
          finish = part;
          break;
        }
        if (part.type === 'error') thrown ??= part.error;
        // After an error only the usage of the finish is of interest.
        const wire = thrown === undefined ? wirePart(part, open) : undefined;
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
      const error = options.errorOf(thrown ?? new Problem('upstream_failed', 'upstream_truncated', 'The model broke off before its answer was complete.'));
      // The caller is gone: there is nobody to end the stream for.
      if (error === undefined) return;
      yield { type: 'error', error: error as Extract<WirePart, { type: 'error' }>['error'] };
      yield { type: 'finish', finishReason: { unified: 'error' }, usage: usageOf(usage) };
      return;
    }
    const metadata = finish.providerMetadata === undefined ? {} : { providerMetadata: finish.providerMetadata as Record<string, Record<string, unknown>> };
    yield { type: 'finish', finishReason: finishOf(finish.finishReason), usage: usageOf(usage), ...metadata };
  } finally {
    await source.return?.();
  }
}

// One part as version 3 has it, or undefined for what it has not: pings, files of reasoning, custom content. Parts of
// a block that is not open are dropped and edges that are missing are not repeated, so that blocks stay balanced.
function wirePart(part: StreamPart, open: Map<string, string>): WirePart | undefined {
  switch (part.type) {
    case 'text-start':
    case 'reasoning-start':
    case 'tool-input-start': {
      if (open.has(part.id)) return undefined;
      open.set(part.id, part.type.replace('start', 'end'));
      if (part.type !== 'tool-input-start') return part as WirePart;
      const { inputEncoding: _inputEncoding, ...rest } = part;
      return rest as WirePart;
    }
    case 'text-delta':
    case 'reasoning-delta':
    case 'tool-input-delta':
      return open.has(part.id) ? (part as WirePart) : undefined;
    case 'text-end': {
      const { citations: _citations, ...rest } = part;
      return open.delete(part.id) ? (rest as WirePart) : undefined;
    }
    case 'reasoning-end':
    case 'tool-input-end':
      return open.delete(part.id) ? (part as WirePart) : undefined;
    case 'tool-call':
    case 'source':
    case 'raw':
      return part as WirePart;
    case 'file':
      if (part.data.type !== 'data') return undefined;
      return { ...part, data: base64(part.data.data) } as WirePart;
    default:
      return undefined;
  }
}

function base64(data: string | Uint8Array): string {
  return typeof data === 'string' ? data : Buffer.from(data).toString('base64');
}

// `deprecated` came with version 4.
function warningOf(warning: Warning): { type: string } & Record<string, unknown> {
  return warning.type === 'deprecated' ? { type: 'other', message: `${warning.setting}: ${warning.message}` } : warning;
}

// `interrupted` came with version 4.
function finishOf({ unified, raw }: FinishReason): Extract<WirePart, { type: 'finish' }>['finishReason'] {
  return { unified: unified === 'interrupted' ? 'error' : unified, ...(raw === undefined ? {} : { raw }) };
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
    const counted = tokenCount(count);
    if (counted !== undefined) known[kind] = counted;
  }
  return known;
}
