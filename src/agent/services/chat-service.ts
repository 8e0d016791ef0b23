// The service `chat` puts messages into the queue of a session. It runs nothing itself: while it is
// stopped it refuses new messages, but messages that are already queued still run.
import type { Service } from '../service.ts';
import type { ServiceDefinition } from '../service-definition.ts';
import type { Chat, ChatMessage, ChatReceipt } from '../sessions/index.ts';
import type { ServiceDirectory } from './directory.ts';

/** `chat` is a function because the sessions are constructed after the services. */
export function chatService(chat: () => Chat): ServiceDefinition {
  return {
    name: 'chat',
    title: 'Chat',
    start: async () => {},
    stop: async () => {},
    actions: {
      send: {
        description: 'Sends a message into a chat.',
        input: {
          type: 'object',
          required: ['chatId', 'text'],
          properties: {
            chatId: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,128}$' },
            text: { type: 'string', minLength: 1 },
            attended: { type: 'boolean' },
            attachments: { type: 'array', items: { type: 'object' } },
          },
          additionalProperties: false,
        },
        run: (message: ChatMessage, { requestId }) =>
          chat().send({ ...message, origin: 'service', requestId }),
      },
    },
  };
}

/** The route of `send`; 202, since the message is queued and not answered yet. */
export function chatRoutes({ directory }: { directory: ServiceDirectory }): Service<'chat'> {
  return {
    name: 'chat',
    handlers: {
      'chat.sendMessage': async ({ body, requestId, signal, log }) => {
        const result = await directory.call({
          service: 'chat',
          kind: 'action',
          name: 'send',
          payload: { ...body },
          requestId,
          signal,
          log,
        });
        const { queueItemId, queuePosition, sessionId, runId, seq } = result as ChatReceipt;
        return {
          status: 202,
          body: {
            success: true,
            serviceName: 'chat',
            queued: true,
            queueItemId,
            queuePosition,
            sessionId,
            runId,
            seq,
          },
        };
      },
    },
  };
}
