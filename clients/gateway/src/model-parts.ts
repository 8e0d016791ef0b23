// Converts stream parts of the contract into those of `LanguageModelV3`, one by one or collected
// into one answer.

import { problemIn } from '../../shared/src/client-error.ts';
import { GatewayError } from './errors.ts';
import type { StreamPart, StreamUsage } from './generated/types.gen.ts';
// The next comment applies to one line, so it works only in the emitted declaration, where the import is one
// line. Here the package is always installed.
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type {
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3Usage,
} from '@ai-sdk/provider';

/**
 * Restores what JSON cannot carry: dates, members that are `undefined` instead of absent, and
 * errors.
 */
export function revivePart(part: StreamPart): LanguageModelV3StreamPart {
  switch (part.type) {
    case 'response-metadata':
      return {
        ...part,
        timestamp: part.timestamp === undefined ? undefined : new Date(part.timestamp),
      } as LanguageModelV3StreamPart;
    case 'finish':
      return {
        ...part,
        finishReason: { unified: part.finishReason.unified, raw: part.finishReason.raw },
        usage: reviveUsage(part.usage),
      } as LanguageModelV3StreamPart;
    case 'error':
      return {
        type: 'error',
        error: new GatewayError({
          status: 200,
          ...(problemIn(part) ?? { code: 'unknown_error', message: 'The model failed.' }),
        }),
      };
    default:
      return part as LanguageModelV3StreamPart;
  }
}

function reviveUsage({ inputTokens, outputTokens, raw }: StreamUsage): LanguageModelV3Usage {
  return {
    inputTokens: {
      total: inputTokens.total,
      noCache: inputTokens.noCache,
      cacheRead: inputTokens.cacheRead,
      cacheWrite: inputTokens.cacheWrite,
    },
    outputTokens: { total: outputTokens.total, text: outputTokens.text, reasoning: outputTokens.reasoning },
    raw: raw as LanguageModelV3Usage['raw'],
  };
}

export type CollectedAnswer = Pick<
  LanguageModelV3GenerateResult,
  'content' | 'finishReason' | 'usage' | 'providerMetadata' | 'warnings'
> & {
  response: { id?: string; timestamp?: Date; modelId?: string };
};

/**
 * Reads the stream until it ends; throws the error of an `error` part. The content is in the order in
 * which its blocks began.
 */
export async function collectParts(parts: AsyncIterable<StreamPart>): Promise<CollectedAnswer> {
  const content = new ContentCollector();
  const warnings: CollectedAnswer['warnings'] = [];
  let response: CollectedAnswer['response'] = {};
  let finish: Extract<LanguageModelV3StreamPart, { type: 'finish' }> | undefined;

  for await (const wirePart of parts) {
    const part = revivePart(wirePart);
    switch (part.type) {
      case 'stream-start':
        warnings.push(...part.warnings);
        break;
      case 'response-metadata':
        response = {
          id: part.id,
          timestamp: part.timestamp,
          modelId: part.modelId,
        } as CollectedAnswer['response'];
        break;
      case 'error':
        throw part.error;
      case 'finish':
        finish = part;
        break;
      default:
        content.add(part);
    }
  }
  // The client has already refused a stream without `finish`; this check narrows the type.
  if (finish === undefined)
    throw new GatewayError({
      code: 'stream_truncated',
      message: 'The stream ended before its answer was complete.',
    });
  const { finishReason, usage, providerMetadata } = finish;
  return {
    content: content.items(),
    finishReason,
    usage,
    warnings,
    response,
    ...(providerMetadata === undefined ? {} : { providerMetadata }),
  };
}

type ContentPart = Exclude<
  LanguageModelV3StreamPart,
  { type: 'stream-start' | 'response-metadata' | 'error' | 'finish' }
>;
type TextBlock = Extract<LanguageModelV3Content, { text: string }>;

/** Joins the deltas of text and reasoning into blocks. */
class ContentCollector {
  readonly #content: LanguageModelV3Content[] = [];
  /** The blocks that have not ended yet, by kind and id. */
  readonly #open = new Map<string, TextBlock>();

  add(part: ContentPart): void {
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start': {
        const type = part.type === 'text-start' ? ('text' as const) : ('reasoning' as const);
        const block = { type, text: '', ...metadataOf(part) };
        this.#open.set(`${type} ${part.id}`, block);
        this.#content.push(block);
        break;
      }
      case 'text-delta':
      case 'text-end':
      case 'reasoning-delta':
      case 'reasoning-end': {
        const [kind = '', step] = part.type.split('-');
        const block = this.#open.get(`${kind} ${part.id}`);
        if (block === undefined) break;
        if ('delta' in part) block.text += part.delta;
        Object.assign(block, metadataOf(part));
        if (step === 'end') this.#open.delete(`${kind} ${part.id}`);
        break;
      }
      case 'tool-call':
      case 'tool-result':
      case 'tool-approval-request':
      case 'file':
      case 'source':
        this.#content.push(part);
        break;
      // A tool's whole input is in its `tool-call`, and raw parts are for streaming callers only.
      case 'tool-input-start':
      case 'tool-input-delta':
      case 'tool-input-end':
      case 'raw':
        break;
    }
  }

  /**
   * An empty text block has no content; an empty reasoning block may have metadata that the
   * provider needs back.
   */
  items(): LanguageModelV3Content[] {
    return this.#content.filter(
      (block) => block.type !== 'text' || block.text !== '' || block.providerMetadata !== undefined,
    );
  }
}

function metadataOf<Metadata>({ providerMetadata }: { providerMetadata?: Metadata }): {
  providerMetadata?: Metadata;
} {
  return providerMetadata === undefined ? {} : { providerMetadata };
}
