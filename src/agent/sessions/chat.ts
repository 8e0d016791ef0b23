// Chats: a chat is a session that is found by the id that the chat has elsewhere. It is made with its first message, and
// whatever is sent to it joins its history and its queue in one step.
import type { Attachment, ExecuteReceipt, SessionKind } from '../../contract/agent/types.gen.ts';

export interface ChatMessage {
  chatId: string;
  text: string;
  attachments?: readonly Omit<Attachment, 'type'>[] | undefined;
  model?: string | undefined;
  /** Whether somebody can decide approvals; for a chat that this message makes. */
  attended?: boolean | undefined;
  /** The way in, for the history. */
  origin?: SessionKind | 'service' | undefined;
}

/** What is answered, at once, for a message that a queue has taken. */
export type ChatReceipt = Required<Pick<ExecuteReceipt, 'queueItemId' | 'queuePosition' | 'seq'>> &
  ExecuteReceipt & { queued: true };

export interface Chat {
  /** Resolves once the message is durable. */
  send(message: ChatMessage): Promise<ChatReceipt>;
  /** The session of a chat; undefined before its first message. */
  sessionOf(chatId: string): Promise<string | undefined>;
}

/** What this room needs of the sessions; they know nothing of it. */
export interface ChatNeeds {
  agentId: string;
  inputs: {
    submit(input: {
      to: { chatId: string };
      origin: SessionKind | 'service';
      parts: readonly { type: 'text'; text: string }[];
      attachments?: readonly Omit<Attachment, 'type'>[] | undefined;
      model?: string | undefined;
      attended?: boolean | undefined;
    }): Promise<{
      receipt: {
        queueItemId: string | null;
        queuePosition: number;
        sessionId: string;
        runId: string;
        seq: number;
      };
    }>;
  };
  store: { session(agentId: string, named: { chatId: string }): Promise<{ id: string } | undefined> };
}

export function createChat({ agentId, inputs, store }: ChatNeeds): Chat {
  return {
    async send({ chatId, text, attachments, model, attended, origin = 'chat' }) {
      const { receipt } = await inputs.submit({
        to: { chatId },
        origin,
        parts: [{ type: 'text', text }],
        attachments,
        model,
        attended,
      });
      const { queueItemId, queuePosition, sessionId, runId, seq } = receipt;
      // Everything in a chat goes through its queue; what is at its head begins at once and has position 0.
      return {
        success: true,
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
