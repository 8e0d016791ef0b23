// The sessions that this process wrote to last, as it left them. It saves a look at the row and a lock around it, and is
// never trusted: what is planned from it is written only while the session still stands at the same seq, and everything
// that changes in the row raises that.
import type { Moved } from './unit.ts';
import type { SessionLocator, SessionRecord } from './session-store.ts';

export interface Heads {
  /** A copy. */
  get(named: SessionLocator): SessionRecord | undefined;
  keep(session: SessionRecord): void;
  moved(moved: Moved): void;
  forget(sessionKey: string): void;
}

const mostKept = 200;

export function createHeads(): Heads {
  const kept = new Map<string, SessionRecord>();
  const keys = new Map<string, string>();

  function forget(key: string): void {
    const session = kept.get(key);
    if (!session) return;
    kept.delete(key);
    for (const name of namesOf(session)) if (keys.get(name) === key) keys.delete(name);
  }

  return {
    forget,
    get(named) {
      const key = 'key' in named ? named.key : keys.get(nameOf(named));
      const session = key === undefined ? undefined : kept.get(key);
      return session && { ...session };
    },
    keep(session) {
      // The past of a fork may become its own without a word in its log.
      if (session.lineage.length > 0) return;
      forget(session.key);
      kept.set(session.key, { ...session });
      for (const name of namesOf(session)) keys.set(name, session.key);
      if (kept.size > mostKept) forget(kept.keys().next().value as string);
    },
    moved({ append: { sessionKey, events, change = {} }, headSeq }) {
      const session = kept.get(sessionKey);
      if (!session) return;
      // Somebody else wrote in between, or members that are not in the change were set.
      if (
        session.headSeq + events.length !== headSeq ||
        events.some(({ type }) => type.startsWith('session.'))
      )
        return forget(sessionKey);
      session.headSeq = headSeq;
      if (change.activeRunId !== undefined) session.activeRunId = change.activeRunId;
      session.queueLength += change.queue ?? 0;
      session.pendingApprovals += change.approvals ?? 0;
      session.messageCount += change.messages ?? 0;
      session.inputTokens += change.inputTokens ?? 0;
      session.outputTokens += change.outputTokens ?? 0;
      session.title ??= change.title ?? null;
    },
  };
}

export function nameOf(named: SessionLocator): string {
  return 'id' in named ? `id ${named.id}` : 'chatId' in named ? `chat ${named.chatId}` : `key ${named.key}`;
}

function namesOf({ id, chatId }: SessionRecord): string[] {
  return chatId === null ? [nameOf({ id })] : [nameOf({ id }), nameOf({ chatId })];
}
