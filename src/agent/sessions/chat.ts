// Chats: a chat is a session addressed by an external id. Its first message creates
// it, and every message goes through its queue.
import type { ExecuteReceipt, SessionKind } from '../../contract/agent/types.gen.ts';
import type { AttachmentInput } from './attachments/files.ts';
import type { InputSubmitter } from './submit.ts';

export interface ChatMessage {
  chatId: string;
  text: string;
  attachments?: readonly AttachmentInput[] | undefined;
  model?: string | undefined;
  /** Whether a person can decide approvals of the chat; applies to a message that creates its chat. */
  attended?: boolean | undefined;
  origin?: SessionKind | 'service' | undefined;
  /** Request id of a call with an Idempotency-Key; finds the run after a crash. */
  requestId?: string | undefined;
}

export type ChatReceipt = Required<Pick<ExecuteReceipt, 'queueItemId' | 'queuePosition' | 'seq'>> &
  ExecuteReceipt & { queued: true; queueItemId: string };

export interface Chat {
  /** Resolves once the message is durable. */
  send(message: ChatMessage): Promise<ChatReceipt>;
}

export function createChat(inputs: Pick<InputSubmitter, 'submit'>): Chat {
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
        // Every input of a chat has a queue item, which the type of a receipt does not say.
        queueItemId: queueItemId ?? runId,
        queuePosition,
        sessionId,
        runId,
        seq,
      };
    },
  };
}
