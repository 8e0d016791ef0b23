// Polls the database for the writes of the agent's other processes and publishes them to the subscribers
// of this one: the last seq and the open text of each session. A single process does not poll.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { LiveFeed, OpenPart } from './live-feed.ts';
import type { EventStore } from './store.ts';

export interface ReplicaPollOptions {
  feed: Omit<LiveFeed, 'publish'>;
  events: Pick<EventStore, 'headSeqs' | 'openTexts'>;
  /** Whether this process executes the run; its live feed then already has the text. */
  isLocal(runId: string): boolean;
  clock: Clock;
  log: Log;
  intervalMs?: number;
}

/** Resolves after the signal is aborted. */
export async function pollReplicas(
  { feed, events, isLocal, clock, log, intervalMs = 250 }: ReplicaPollOptions,
  signal: AbortSignal,
): Promise<void> {
  const remoteParts = createRemoteParts(feed, clock);
  while (!signal.aborted) {
    await clock.sleep(intervalMs, signal).catch(() => {});
    if (signal.aborted) return;
    try {
      await poll();
    } catch (error) {
      log.warn({ err: error }, 'the events of other processes cannot be read at the moment');
    }
  }

  async function poll(): Promise<void> {
    const keys = feed.subscribedSessions();
    remoteParts.keepSessions(keys);
    if (keys.length === 0) return;
    const headSeqs = await events.headSeqs(keys);
    for (const { sessionKey, headSeq } of headSeqs) feed.announceHead(sessionKey, headSeq);
    for (const key of keys)
      if (!headSeqs.some(({ sessionKey }) => sessionKey === key)) feed.announceRemoval(key);
    remoteParts.update((await events.openTexts(keys)).filter(({ runId }) => !isLocal(runId)));
  }
}

/** The open parts that other processes write, mirrored into the feed of this one. */
function createRemoteParts(
  feed: Omit<LiveFeed, 'publish'>,
  clock: Clock,
): {
  keepSessions(keys: readonly string[]): void;
  update(openParts: readonly (OpenPart & { sessionKey: string })[]): void;
} {
  /** The number of published characters of each part, by session. */
  const lengths = new Map<string, Map<string, number>>();

  function publishText({ sessionKey, text, ...part }: OpenPart & { sessionKey: string }): void {
    const partLengths = lengths.get(sessionKey) ?? new Map<string, number>();
    lengths.set(sessionKey, partLengths);
    if (!partLengths.has(part.partId)) feed.openPart(sessionKey, { ...part, text: '' });
    const publishedLength = partLengths.get(part.partId) ?? 0;
    if (text.length > publishedLength)
      feed.addText(sessionKey, part.partId, text.slice(publishedLength), clock.now().toISOString());
    partLengths.set(part.partId, text.length);
  }

  return {
    keepSessions(keys) {
      for (const [key, parts] of lengths) {
        if (keys.includes(key)) continue;
        for (const partId of parts.keys()) feed.closePart(key, partId);
        lengths.delete(key);
      }
    },
    update(openParts) {
      openParts.forEach(publishText);
      for (const [key, parts] of lengths) {
        for (const partId of parts.keys()) {
          if (openParts.some((part) => part.partId === partId)) continue;
          parts.delete(partId);
          feed.closePart(key, partId);
        }
      }
    },
  };
}
