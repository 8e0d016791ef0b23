// Chats: a chat is a session addressed by an external id. Its first message creates
// it, and every message goes through its queue.
import type { Attachment, ExecuteReceipt, SessionKind } from '../../contract/agent/types.gen.ts';

export interface ChatMessage {
  chatId: string;
  text: string;
  attachments?: readonly Omit<Attachment, 'type'>[] | undefined;
  model?: string | undefined;
  /** Whether a person can decide approvals of the chat; applies to a message that creates its chat. */
  attended?: boolean | undefined;
  origin?: SessionKind | 'service' | undefined;
  /** Request id of a call with an Idempotency-Key; finds the run after a crash. */
  requestId?: string | undefined;
}

export type ChatReceipt = Required<Pick<ExecuteReceipt, 'queueItemId' | 'queuePosition' | 'seq'>> &
  ExecuteReceipt & { queued: true };

export interface Chat {
  /** Resolves once the message is durable. */
  send(message: ChatMessage): Promise<ChatReceipt>;
  /** The id of a chat's session; undefined before its first message. */
  sessionOf(chatId: string): Promise<string | undefined>;
}

export function createChat({
  agentId,
  inputs,
  store,
}: {
  agentId: string;
  inputs: {
    submit(input: {
      to: { chatId: string };
      origin: SessionKind | 'service';
      parts: readonly { type: 'text'; text: string }[];
      attachments?: readonly Omit<Attachment, 'type'>[] | undefined;
      model?: string | undefined;
      attended?: boolean | undefined;
      requestId?: string | undefined;
    }): Promise<{
      receipt: Pick<ChatReceipt, 'queueItemId' | 'queuePosition' | 'sessionId' | 'runId' | 'seq'>;
    }>;
  };
  store: { session(agentId: string, locator: { chatId: string }): Promise<{ id: string } | undefined> };
}): Chat {
  return {
    async send({ chatId, text, origin = 'chat', ...settings }) {
      const { receipt } = await inputs.submit({
        to: { chatId },
        origin,
        parts: [{ type: 'text', text }],
        ...settings,
      });
      const { queueItemId, queuePosition, sessionId, runId, seq } = receipt;
      return {
        success: true,
        // A message that starts at once counts as queued too: it is the head of the queue, at
        // position 0.
        queued: true,
        queueItemId: queueItemId ?? runId,
        queuePosition,
        sessionId,
        runId,
        seq,
      };
    },
    async sessionOf(chatId) {
      return (await store.session(agentId, { chatId }))?.id;
    },
  };
}
