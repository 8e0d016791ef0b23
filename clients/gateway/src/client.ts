// The facade of the gateway client: every operation of the contract as `client.<service>.<action>()`, made from the
// generated part, and by hand only what a document cannot say: how the two streams end, and the model object.

import { createEventStream, createServices, createTargetReader, type EventStream, readBaseUrl, type Services, targetOf } from '../../shared/src/operations.ts';
import { type CallOptions, type ConnectionOptions, createTransport, type StreamCallOptions, type StreamRule } from '../../shared/src/transport.ts';
import { GatewayError } from './errors.ts';
import { createClient, createConfig } from './generated/client/index.ts';
import { GatewayOperations } from './generated/sdk.gen.ts';
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, StreamPart, StreamRequest } from './generated/types.gen.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { LanguageModelV3 } from '@ai-sdk/provider';
import { createLanguageModel, type ModelRoute } from './language-model.ts';
import type { ModelSettings } from './model-call.ts';

export interface GatewayClientOptions extends ConnectionOptions {}

type Generated = Services<GatewayOperations>;

/** `client.ai`: the generated methods, with the streaming ones by hand. */
export interface AiMethods extends Omit<Generated['ai'], 'streamText' | 'createChatCompletion'> {
  /**
   * Stream a model
   *
   * The parts of the answer as they come, the last of them `finish`. An `error` part tells of a failure of the model
   * midway; a stream that was cut off throws `stream_truncated`.
   */
  streamText(request: StreamRequest, options?: StreamCallOptions): EventStream<StreamPart>;
  /**
   * Create a chat completion
   *
   * With `stream: true` the chunks as they come; a failure midway is thrown.
   */
  createChatCompletion(request: ChatCompletionRequest & { stream: true }, options?: StreamCallOptions): EventStream<ChatCompletionChunk>;
  createChatCompletion(request: ChatCompletionRequest & { stream?: false | null }, options?: CallOptions): Promise<ChatCompletion>;
}

export type GatewayClient = Omit<Generated, 'ai'> & {
  readonly ai: AiMethods;
  /** A model for the AI SDK: `generateText({ model: client.model('local/echo'), … })`. */
  model(modelId: string, settings?: ModelSettings): LanguageModelV3;
};

/** Makes a client; nothing is sent until a method is called, and nothing needs to be closed. */
export function createGatewayClient(options: GatewayClientOptions): GatewayClient {
  const addresses = createClient(createConfig({ baseUrl: readBaseUrl(options.baseUrl) }));
  const transport = createTransport({
    ...options,
    buildUrl: (parts) => addresses.buildUrl(parts),
    fail: (failure) => new GatewayError(failure),
  });
  const generated = new GatewayOperations({ client: createTargetReader() as typeof addresses });
  const services = createServices(generated, transport);

  const streamTarget = targetOf(generated.ai, 'streamText');
  const chatTarget = targetOf(generated.ai, 'createChatCompletion');
  const modelRoute: ModelRoute = {
    url: addresses.buildUrl({ url: streamTarget.url }),
    open: (request, call) => transport.openStream(streamTarget, request, withVersion(call), partRule),
  };

  const ai = {
    ...services.ai,
    streamText: (request: StreamRequest, call: StreamCallOptions = {}) => createEventStream(transport, streamTarget, request, withVersion(call), partRule),
    createChatCompletion: (request: ChatCompletionRequest, call: StreamCallOptions = {}) =>
      request.stream === true ? createEventStream(transport, chatTarget, request, call, chunkRule) : transport.call(chatTarget, request, call),
  } as AiMethods;

  return { ...services, ai, model: (modelId, settings = {}) => createLanguageModel(modelId, settings, modelRoute) };
}

const partRule: StreamRule<StreamPart> = { isLast: (part) => part.type === 'finish' };
const chunkRule: StreamRule<ChatCompletionChunk> = { failsByError: true };

function withVersion(call: StreamCallOptions): StreamCallOptions {
  return { ...call, headers: { ...call.headers, 'ai-language-model-specification-version': '3' } };
}
