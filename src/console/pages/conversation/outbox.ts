// Messages being sent to the agent: one after the other, in the order in which they were written.

export interface Outgoing {
  text: string;
  files: File[];
  delivery: string;
  /** Stays the same for a repeated text, so that a session accepts it once. */
  id: string;
}

export interface Outbox {
  messages(): readonly Outgoing[];
  send(message: Outgoing): void;
}

export function createOutbox({
  deliver,
  onChange,
  onAccepted,
  onRefused,
}: {
  /** Resolves to the id of the session that accepted the message. */
  deliver(message: Outgoing): Promise<string>;
  onChange(): void;
  onAccepted(sessionId: string): void;
  /**
   * Receives all unsent messages: those after the refused one would arrive without their context.
   */
  onRefused(error: unknown, unsent: readonly Outgoing[]): void;
}): Outbox {
  const messages: Outgoing[] = [];

  async function sendAll(): Promise<void> {
    for (let next = messages[0]; next !== undefined; next = messages[0]) {
      try {
        const sessionId = await deliver(next);
        messages.shift();
        onChange();
        onAccepted(sessionId);
      } catch (error) {
        const unsentMessages = messages.splice(0);
        onChange();
        onRefused(error, unsentMessages);
      }
    }
  }

  return {
    messages: () => messages,
    send(message) {
      messages.push(message);
      onChange();
      if (messages.length === 1) void sendAll();
    },
  };
}
