// A model of the gateway as the AI SDK's `LanguageModelV3`. It hides the transport: call options go out as JSON and
// stream parts come back; both calls of the interface use the one stream, because only it carries tools and files.

import type { StreamCallOptions } from '../../shared/src/call-options.ts';
import type { OpenedStream } from '../../shared/src/transport.ts';
import { GatewayError } from './errors.ts';
import type { StreamPart, StreamRequest } from './generated/types.gen.ts';
import { type ModelSettings, writeModelCall } from './model-call.ts';
import { collectParts, revivePart } from './model-parts.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3StreamPart,
} from '@ai-sdk/provider';

/** How a model reaches its gateway. */
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
    // None: the gateway never fetches an address, and not every provider does, so the SDK sends the bytes.
    supportedUrls: {},

    async doGenerate(options) {
      const { call, request, warnings } = await open(options);
      try {
        const collected = await collectParts(call.events);
        return {
          ...collected,
          warnings: [...warnings, ...collected.warnings],
          request: { body: request },
          response: { ...collected.response, headers: call.headers },
        };
      } catch (error) {
        throw markCallError(error, request, route.url);
      } finally {
        call.close();
      }
    },

    async doStream(options) {
      const { call, request, warnings } = await open(options);
      const stream = new ReadableStream<LanguageModelV3StreamPart>({
        async pull(controller) {
          try {
            const next = await call.events.next();
            if (next.done) return controller.close();
            const part = revivePart(next.value);
            controller.enqueue(
              part.type === 'stream-start' ? { ...part, warnings: [...warnings, ...part.warnings] } : part,
            );
          } catch (error) {
            controller.error(markCallError(error, request, route.url));
          }
        },
        cancel: () => call.close(),
      });
      return { stream, request: { body: request }, response: { headers: call.headers } };
    },
  };
}

// The credential is the client's alone, and the others belong to the connection.
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

/** The headers of a call that may go out with it. */
export function passableHeaders(
  headers: Readonly<Record<string, string | undefined>> = {},
): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !ownHeaders.has(name.toLowerCase())));
}

/**
 * Gives one of our errors the marks of the AI SDK's `APICallError`, by which the SDK decides whether to retry; an abort
 * stays what it is. The request is not enumerable, so that a logged error does not carry the prompt.
 */
export function markCallError(error: unknown, request: object, url: string): unknown {
  if (!GatewayError.isInstance(error)) return error;
  const marks: Record<PropertyKey, unknown> = {
    [Symbol.for('vercel.ai.error')]: true,
    [Symbol.for('vercel.ai.error.AI_APICallError')]: true,
    isRetryable: error.retryable,
    statusCode: error.status === 0 ? undefined : error.status,
    responseHeaders: error.headers,
    url,
    requestBodyValues: request,
  };
  for (const key of Reflect.ownKeys(marks))
    Object.defineProperty(error, key, { value: marks[key], configurable: true });
  return error;
}
