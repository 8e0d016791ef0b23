// The transport of the AI SDK's chats (`useChat`, `Chat`): sends the messages of a chat to a model of the
// gateway and returns the UI message stream. The types match those of the package `ai`, which is not a
// dependency.

import type { StreamCallOptions } from '../../shared/src/call-options.ts';
import type { StreamedCall } from '../../shared/src/operations.ts';
import type { UiChatChunk as Chunk, UiChatRequest } from './generated/types.gen.ts';

/** The model of a chat and its settings. */
export type ChatSettings = Omit<UiChatRequest, 'messages' | 'id' | 'trigger' | 'messageId'>;

type Json = null | string | number | boolean | Json[] | { [key: string]: Json | undefined };

// The SDK types members with JSON values as JSON; in the generated types they are `unknown`.
type WithJson<Part> = Part extends { type: infer Type }
  ? Omit<Part, 'type' | 'providerMetadata' | 'kind' | 'citations'> & { type: Type } & (Part extends {
        providerMetadata?: unknown;
      }
        ? { providerMetadata?: { [provider: string]: { [name: string]: Json | undefined } } }
        : unknown) &
      (Part extends { kind: string } ? { kind: `${string}.${string}` } : unknown)
  : never;

/** A chunk of the stream. */
export type ChatChunk = WithJson<Chunk>;

/** The argument with which the SDK calls `sendMessages`. */
export interface ChatCall {
  chatId: string;
  trigger: 'submit-message' | 'regenerate-message';
  messageId: string | undefined;
  messages: readonly object[];
  abortSignal: AbortSignal | undefined;
  headers?: Readonly<Record<string, string>> | Headers | undefined;
  /** Settings of this call; they take precedence over those of the transport. */
  body?: object | undefined;
}

/** A `ChatTransport` of the AI SDK, version 7. */
export interface ChatTransport {
  /**
   * Rejects with a `GatewayError` when the call is refused. Aborting the signal also ends the call at
   * its provider.
   */
  sendMessages(call: ChatCall): Promise<ReadableStream<ChatChunk>>;
  /** Resolves with null: the gateway does not keep a chat's stream, so it cannot be joined again. */
  reconnectToStream(options: { chatId: string }): Promise<null>;
}

export type OpenChat = (request: UiChatRequest, options: StreamCallOptions) => StreamedCall<Chunk>;

/** `settings` may be a function, which is called for each message. */
export function createChatTransport(
  settings: ChatSettings | (() => ChatSettings | Promise<ChatSettings>),
  open: OpenChat,
): ChatTransport {
  return {
    async sendMessages({ chatId, trigger, messageId, messages, abortSignal, headers, body }) {
      const base = typeof settings === 'function' ? await settings() : settings;
      const request = { ...base, ...body, id: chatId, trigger, messageId, messages } as UiChatRequest;
      const stream = open(request, { signal: abortSignal, headers: toRecord(headers) });
      await stream.withResponse();
      return toReadable(stream);
    },
    reconnectToStream: () => Promise.resolve(null),
  };
}

function toRecord(headers: ChatCall['headers']): Record<string, string> {
  return Object.fromEntries(headers instanceof Headers ? headers.entries() : Object.entries(headers ?? {}));
}

// Not `ReadableStream.from`, which some browsers lack.
function toReadable(stream: StreamedCall<Chunk>): ReadableStream<ChatChunk> {
  const chunks = stream[Symbol.asyncIterator]();
  return new ReadableStream<ChatChunk>({
    async pull(controller) {
      const next = await chunks.next();
      if (next.done === true) controller.close();
      else controller.enqueue(next.value as ChatChunk);
    },
    async cancel() {
      await chunks.return?.();
    },
  });
}
