// The gateway client: every operation of the contract as `client.<service>.<action>()`, generated.
// Handwritten on top: how streams end, the login, and the model objects.

import type { CallOptions, ConnectionOptions, StreamCallOptions } from '../../shared/src/call-options.ts';
import {
  createEventStream,
  createServices,
  createTargetReader,
  readBaseUrl,
  type Services,
  type StreamedCall,
  targetOf,
} from '../../shared/src/operations.ts';
import type { PendingCall } from '../../shared/src/pending-call.ts';
import { createTransport, type StreamRule, type Transport } from '../../shared/src/transport.ts';
import { GatewayError } from './errors.ts';
import type { Client } from './generated/client/index.ts';
import { buildUrl } from './generated/client/utils.gen.ts';
import { keyedOperations } from './generated/keyed-operations.gen.ts';
import { GatewayOperations } from './generated/sdk.gen.ts';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  GeminiEvent,
  StreamPart,
  StreamRequest,
  UiChatChunk,
  UiChatRequest,
} from './generated/types.gen.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { ImageModelV3, LanguageModelV3, SpeechModelV3, TranscriptionModelV3 } from '@ai-sdk/provider';
import { type ChatSettings, type ChatTransport, createChatTransport } from './chat-transport.ts';
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

/** `client.ai`: the generated methods, with handwritten ones for streams. */
export interface AiMethods extends Omit<Generated['ai'], 'streamText' | 'createChatCompletion'> {
  /**
   * Stream a model
   *
   * Yields the parts of the answer as they arrive, `finish` last. An `error` part
   * reports a failure of the model midway; a truncated stream throws `stream_truncated`.
   *
   * @example
   * ```ts
   * const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Good morning' }] }];
   * for await (const part of client.ai.streamText({ model: 'local/echo', prompt }))
   *   if (part.type === 'text-delta') console.log(part.delta);
   * ```
   */
  streamText(request: StreamRequest, options?: StreamCallOptions): StreamedCall<StreamPart>;
  /**
   * Create a chat completion
   *
   * With `stream: true` it yields the chunks as they arrive and throws for a failure midway.
   *
   * @example
   * ```ts
   * const messages = [{ role: 'user' as const, content: 'Good morning' }];
   * for await (const chunk of client.ai.createChatCompletion({ model: 'local/echo', messages, stream: true }))
   *   console.log(chunk.choices[0]?.delta.content);
   * ```
   */
  createChatCompletion(
    request: ChatCompletionRequest & { stream: true },
    options?: StreamCallOptions,
  ): StreamedCall<ChatCompletionChunk>;
  createChatCompletion(
    request: ChatCompletionRequest & { stream?: false | null },
    options?: CallOptions,
  ): PendingCall<ChatCompletion>;
}

export type GatewayClient = Omit<Generated, 'ai' | 'services'> & {
  readonly ai: AiMethods;
  /** A model for the AI SDK: `generateText({ model: client.model('local/echo'), … })`. */
  model(modelId: string, settings?: ModelSettings): LanguageModelV3;
  readonly login: Login;
  /**
   * A transport for chats of the AI SDK:
   * `useChat({ transport: client.chatTransport({ model: 'local/echo' }) })`. A function as settings
   * is called for each message.
   */
  chatTransport(settings: ChatSettings | (() => ChatSettings | Promise<ChatSettings>)): ChatTransport;
  /** An image model for the AI SDK: `generateImage({ model: client.imageModel('local/shapes'), … })`. */
  imageModel(modelId: string): ImageModelV3;
  /** A speech model for the AI SDK: `generateSpeech({ model: client.speechModel('local/flite'), … })`. */
  speechModel(modelId: string): SpeechModelV3;
  /** A transcription model for the AI SDK. */
  transcriptionModel(modelId: string): TranscriptionModelV3;
  readonly call: ServiceCall;
};

/** Creates a client. It sends nothing until a method is called, and does not have to be closed. */
export function createGatewayClient(options: GatewayClientOptions): GatewayClient {
  const baseUrl = readBaseUrl(options.baseUrl);
  const buildAddress = (parts: Parameters<typeof buildUrl>[0]) => buildUrl({ baseUrl, ...parts });
  const transport = createTransport({
    ...options,
    buildUrl: buildAddress,
    fail: (failure) => new GatewayError(failure),
    keyedOperations,
  });
  const operations = new GatewayOperations({ client: createTargetReader() as Client });
  // The handwritten `client.call` replaces the generated method of the generic operation: it takes the
  // service and the action as arguments instead of members.
  const { services: _generic, ...services } = createServices(operations, transport);
  const streamTarget = targetOf(operations.ai, 'streamText');
  const modelRoute: ModelRoute = {
    url: buildAddress({ url: streamTarget.url }),
    open: (request, call) => transport.openStream(streamTarget, request, withVersion(call), partRule),
  };
  const ai = createAiMethods(services.ai, operations, transport);
  const mediaRoute = createMediaRoute(ai, baseUrl);

  return {
    ...services,
    ai,
    login: createLogin(services.accounts),
    call: createServiceCall(transport),
    model: (modelId, settings = {}) => createLanguageModel(modelId, settings, modelRoute),
    chatTransport: (settings) => createChatTransport(settings, ai.streamUiMessage),
    imageModel: (modelId) => createImageModel(modelId, mediaRoute),
    speechModel: (modelId) => createSpeechModel(modelId, mediaRoute),
    transcriptionModel: (modelId) => createTranscriptionModel(modelId, mediaRoute),
  };
}

/** The generated methods of `ai`. Streams get handwritten ones: the contract cannot express how they end. */
function createAiMethods(
  methods: Generated['ai'],
  { ai: operations }: GatewayOperations,
  transport: Transport,
): AiMethods {
  const streamTarget = targetOf(operations, 'streamText');
  const chatTarget = targetOf(operations, 'createChatCompletion');
  const messageTarget = targetOf(operations, 'streamUiMessage');
  const geminiTarget = targetOf(operations, 'streamGeminiContent');
  return {
    ...methods,
    streamText: (request: StreamRequest, call: StreamCallOptions = {}) =>
      createEventStream(transport, streamTarget, request, withVersion(call), partRule),
    createChatCompletion: (request: ChatCompletionRequest, call: StreamCallOptions = {}) =>
      request.stream === true
        ? createEventStream(transport, chatTarget, request, call, chunkRule)
        : transport.call(chatTarget, request, call),
    streamUiMessage: (request: UiChatRequest, call: StreamCallOptions = {}) =>
      createEventStream(transport, messageTarget, request, call, messageRule),
    streamGeminiContent: (
      request: Parameters<Generated['ai']['streamGeminiContent']>[0],
      call: StreamCallOptions = {},
    ) => createEventStream(transport, geminiTarget, request, call, geminiRule),
    // Requests JSON, as the return type says. A caller who passes an Accept header for audio gets a Blob.
    synthesizeSpeech: (request, call = {}) =>
      methods.synthesizeSpeech(request, {
        ...call,
        headers: { accept: 'application/json', ...call.headers },
      }),
  } as AiMethods;
}

function createMediaRoute(ai: AiMethods, baseUrl: string): MediaRoute {
  return {
    baseUrl,
    createImage: ai.createImage,
    getImage: ai.getImage,
    cancelImage: ai.cancelImage,
    getMedia: ai.getMedia,
    synthesizeSpeech: ai.synthesizeSpeech,
    transcribeAudio: ai.transcribeAudio,
  };
}

const partRule: StreamRule<StreamPart> = { isLast: (part) => part.type === 'finish' };
const messageRule: StreamRule<UiChatChunk> = { isLast: (chunk) => chunk.type === 'finish' };
const chunkRule: StreamRule<ChatCompletionChunk> = { failsByError: true };
// Google's streams have no `[DONE]`; their last event has a `finishReason`.
const geminiRule: StreamRule<GeminiEvent> = {
  failsByError: true,
  hasEndMark: false,
  isLast: (event) =>
    'candidates' in event && event.candidates.some(({ finishReason }) => typeof finishReason === 'string'),
};

function withVersion(call: StreamCallOptions): StreamCallOptions {
  return { ...call, headers: { ...call.headers, 'ai-language-model-specification-version': '3' } };
}
