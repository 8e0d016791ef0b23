// The service `chat`: the mailbox of the agent. It runs nothing of its own, the queue being the sessions' own; stopped
// it takes no message, and what the queue has taken goes on.
import type { Chat, ChatMessage, ChatReceipt } from '../chat/index.ts';
import type { Service } from '../service.ts';
import type { ServiceDefinition } from './definition.ts';
import type { ServiceDirectory } from './directory.ts';

/** `chat` is asked for with each message, since the queue is made after the services. */
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
        run: (message: ChatMessage) => chat().send({ ...message, origin: 'service' }),
      },
    },
  };
}

/** The route of `send`, which says in its status that the message was taken and not answered. */
export function chatRoom({ directory }: { directory: ServiceDirectory }): Service<'chat'> {
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
            queueItemId: queueItemId ?? runId,
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
