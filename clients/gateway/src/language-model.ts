// A model of the gateway as the AI SDK's `LanguageModelV3`: call options are sent as JSON, stream
// parts are received. Both calls of the interface use the stream, because only it supports tools
// and files.

import type { StreamCallOptions } from '../../shared/src/call-options.ts';
import type { OpenedStream } from '../../shared/src/transport.ts';
import { GatewayError } from './errors.ts';
import type { StreamPart, StreamRequest } from './generated/types.gen.ts';
import { type ModelCall, type ModelSettings, writeModelCall } from './model-call.ts';
import { collectParts, revivePart } from './model-parts.ts';
// The next comment applies to one line, so it works only in the emitted declaration, where the import is one
// line. Here the package is always installed.
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3StreamPart,
} from '@ai-sdk/provider';

/** The gateway connection of a model. */
export interface ModelRoute {
  url: string;
  open: (request: StreamRequest, options: StreamCallOptions) => Promise<OpenedStream<StreamPart>>;
}

export function createLanguageModel(
  modelId: string,
  settings: ModelSettings,
  route: ModelRoute,
): LanguageModelV3 {
  async function open(options: LanguageModelV3CallOptions) {
    const { request, warnings } = writeModelCall(modelId, settings, options);
    const headers = passableHeaders(options.headers);
    try {
      const call = await route.open(request, { signal: options.abortSignal, headers });
      return { call, request, warnings };
    } catch (error) {
      throw markCallError(error, request, route.url);
    }
  }

  return {
    specificationVersion: 'v3',
    provider: 'townhall',
    modelId,
    // No URL is supported: the gateway never fetches a URL, and not every provider does. So the SDK
    // downloads the file and sends its bytes.
    supportedUrls: {},

    async doGenerate(options) {
      const { call, request, warnings } = await open(options);
      try {
        const parts = await collectParts(call.events);
        return {
          ...parts,
          warnings: [...warnings, ...parts.warnings],
          request: { body: request },
          response: { ...parts.response, headers: call.headers },
        };
      } catch (error) {
        throw markCallError(error, request, route.url);
      } finally {
        call.close();
      }
    },

    async doStream(options) {
      const { call, request, warnings } = await open(options);
      const stream = toPartStream(call, {
        warnings,
        mark: (error) => markCallError(error, request, route.url),
      });
      return { stream, request: { body: request }, response: { headers: call.headers } };
    },
  };
}

/** Passes on the parts as they arrive, and adds the client's own warnings to the first part. */
function toPartStream(
  { events, close }: OpenedStream<StreamPart>,
  { warnings, mark }: { warnings: ModelCall['warnings']; mark: (error: unknown) => unknown },
): ReadableStream<LanguageModelV3StreamPart> {
  return new ReadableStream<LanguageModelV3StreamPart>({
    async pull(controller) {
      try {
        const next = await events.next();
        if (next.done) return controller.close();
        const part = revivePart(next.value);
        controller.enqueue(
          part.type === 'stream-start' ? { ...part, warnings: [...warnings, ...part.warnings] } : part,
        );
      } catch (error) {
        controller.error(mark(error));
      }
    },
    cancel: close,
  });
}

// Headers that a call cannot override: the client's credential and the headers of the connection.
const ownHeaders = new Set([
  'authorization',
  'proxy-authorization',
  'cookie',
  'host',
  'connection',
  'content-type',
  'content-length',
  'transfer-encoding',
  'accept',
]);

/** The headers of a call without the headers that a call cannot override. */
export function passableHeaders(
  headers: Readonly<Record<string, string | undefined>> = {},
): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !ownHeaders.has(name.toLowerCase())));
}

/**
 * Marks one of our errors like the AI SDK's `APICallError`, by which the SDK decides whether to
 * retry; with `isFinal` it does not. An abort stays unchanged. The request is not enumerable, so
 * that a logged error does not contain the prompt.
 */
export function markCallError(error: unknown, request: object, url: string, isFinal?: boolean): unknown {
  if (!GatewayError.isInstance(error)) return error;
  const marks: Record<PropertyKey, unknown> = {
    [Symbol.for('vercel.ai.error')]: true,
    [Symbol.for('vercel.ai.error.AI_APICallError')]: true,
    isRetryable: !isFinal && error.retryable,
    statusCode: error.status === 0 ? undefined : error.status,
    responseHeaders: error.headers,
    url,
    requestBodyValues: request,
  };
  for (const key of Reflect.ownKeys(marks))
    Object.defineProperty(error, key, { value: marks[key], configurable: true });
  return error;
}
