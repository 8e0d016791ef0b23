// The facade of the gateway client: every operation of the contract as `client.<service>.<action>()`, made from the
// generated part, and by hand only what a document cannot say: how the two streams end, and the model object.

import type { CallOptions, ConnectionOptions, StreamCallOptions } from '../../shared/src/call-options.ts';
import {
  createEventStream,
  createServices,
  createTargetReader,
  type EventStream,
  readBaseUrl,
  type Services,
  targetOf,
} from '../../shared/src/operations.ts';
import { createTransport, type StreamRule } from '../../shared/src/transport.ts';
import { GatewayError } from './errors.ts';
import { createClient, createConfig } from './generated/client/index.ts';
import { GatewayOperations } from './generated/sdk.gen.ts';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  StreamPart,
  StreamRequest,
} from './generated/types.gen.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { ImageModelV3, LanguageModelV3, SpeechModelV3, TranscriptionModelV3 } from '@ai-sdk/provider';
import { createImageModel } from './image-model.ts';
import { createLanguageModel, type ModelRoute } from './language-model.ts';
import type { MediaRoute } from './media-call.ts';
import { createLogin, type Login } from './login.ts';
import type { ModelSettings } from './model-call.ts';
import { createServiceCall, type ServiceCall } from './service-call.ts';
import { createSpeechModel } from './speech-model.ts';
import { createTranscriptionModel } from './transcription-model.ts';

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
  createChatCompletion(
    request: ChatCompletionRequest & { stream: true },
    options?: StreamCallOptions,
  ): EventStream<ChatCompletionChunk>;
  createChatCompletion(
    request: ChatCompletionRequest & { stream?: false | null },
    options?: CallOptions,
  ): Promise<ChatCompletion>;
}

export type GatewayClient = Omit<Generated, 'ai' | 'services'> & {
  readonly ai: AiMethods;
  /** A model for the AI SDK: `generateText({ model: client.model('local/echo'), … })`. */
  model(modelId: string, settings?: ModelSettings): LanguageModelV3;
  readonly login: Login;
  /** An image model for the AI SDK: `generateImage({ model: client.imageModel('local/shapes'), … })`. */
  imageModel(modelId: string): ImageModelV3;
  /** A speech model for the AI SDK: `generateSpeech({ model: client.speechModel('local/flite'), … })`. */
  speechModel(modelId: string): SpeechModelV3;
  /** A transcription model for the AI SDK. */
  transcriptionModel(modelId: string): TranscriptionModelV3;
  readonly call: ServiceCall;
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
  // The generic call has a method of its own, by names instead of members.
  const { services: _generic, ...services } = createServices(generated, transport);

  const streamTarget = targetOf(generated.ai, 'streamText');
  const chatTarget = targetOf(generated.ai, 'createChatCompletion');
  const modelRoute: ModelRoute = {
    url: addresses.buildUrl({ url: streamTarget.url }),
    open: (request, call) => transport.openStream(streamTarget, request, withVersion(call), partRule),
  };

  const ai = {
    ...services.ai,
    streamText: (request: StreamRequest, call: StreamCallOptions = {}) =>
      createEventStream(transport, streamTarget, request, withVersion(call), partRule),
    createChatCompletion: (request: ChatCompletionRequest, call: StreamCallOptions = {}) =>
      request.stream === true
        ? createEventStream(transport, chatTarget, request, call, chunkRule)
        : transport.call(chatTarget, request, call),
    // As its type says; who asks for sound by a header of their own gets a Blob.
    synthesizeSpeech: (request, call = {}) =>
      services.ai.synthesizeSpeech(request, {
        ...call,
        headers: { accept: 'application/json', ...call.headers },
      }),
  } as AiMethods;
  const mediaRoute: MediaRoute = {
    baseUrl: readBaseUrl(options.baseUrl),
    createImage: ai.createImage,
    getImage: ai.getImage,
    cancelImage: ai.cancelImage,
    getMedia: async (link, call) => (await services.ai.getMedia(link, call)) as Blob,
    synthesizeSpeech: ai.synthesizeSpeech,
    transcribeAudio: ai.transcribeAudio,
  };

  return {
    ...services,
    ai,
    login: createLogin(services.accounts),
    call: createServiceCall(transport),
    model: (modelId, settings = {}) => createLanguageModel(modelId, settings, modelRoute),
    imageModel: (modelId) => createImageModel(modelId, mediaRoute),
    speechModel: (modelId) => createSpeechModel(modelId, mediaRoute),
    transcriptionModel: (modelId) => createTranscriptionModel(modelId, mediaRoute),
  };
}

const partRule: StreamRule<StreamPart> = { isLast: (part) => part.type === 'finish' };
const chunkRule: StreamRule<ChatCompletionChunk> = { failsByError: true };

function withVersion(call: StreamCallOptions): StreamCallOptions {
  return { ...call, headers: { ...call.headers, 'ai-language-model-specification-version': '3' } };
}
