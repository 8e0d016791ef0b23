// What other processes of this agent write, for whoever follows it here: twice a second at the most it asks how far the
// followed sessions have come, and what text is open in them. With one process there is nothing to ask.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Bus } from './bus.ts';
import type { EventStore } from './store.ts';

export interface WatchNeeds {
  bus: Bus;
  events: Pick<EventStore, 'headSeqs' | 'openTexts'>;
  /** Whether the run is this process's own, whose text the bus has first. */
  isOwn(runId: string): boolean;
  clock: Clock;
  log: Log;
  everyMs?: number;
}

/** Resolves once the signal is aborted. */
export async function watch(
  { bus, events, isOwn, clock, log, everyMs = 250 }: WatchNeeds,
  signal: AbortSignal,
): Promise<void> {
  /** The length of each foreign part, by session. */
  const foreign = new Map<string, Map<string, number>>();

  async function look(): Promise<void> {
    const keys = bus.followed();
    for (const key of foreign.keys()) if (!keys.includes(key)) forget(key);
    if (keys.length === 0) return;
    const heads = await events.headSeqs(keys);
    for (const { sessionKey, headSeq } of heads) bus.moved(sessionKey, headSeq);
    for (const key of keys) if (!heads.some(({ sessionKey }) => sessionKey === key)) bus.gone(key);
    const open = (await events.openTexts(keys)).filter(({ runId }) => !isOwn(runId));
    for (const { sessionKey, text, ...part } of open) {
      const known = foreign.get(sessionKey) ?? new Map<string, number>();
      foreign.set(sessionKey, known);
      if (!known.has(part.partId)) bus.openPart(sessionKey, { ...part, text: '' });
      const from = known.get(part.partId) ?? 0;
      if (text.length > from)
        bus.addText(sessionKey, part.partId, text.slice(from), clock.now().toISOString());
      known.set(part.partId, text.length);
    }
    for (const [key, known] of foreign) {
      for (const partId of known.keys()) {
        if (open.some((part) => part.partId === partId)) continue;
        known.delete(partId);
        bus.closePart(key, partId);
      }
    }
  }

  function forget(key: string): void {
    for (const partId of foreign.get(key)?.keys() ?? []) bus.closePart(key, partId);
    foreign.delete(key);
  }

  while (!signal.aborted) {
    await clock.sleep(everyMs, signal).catch(() => {});
    if (signal.aborted) return;
    try {
      await look();
    } catch (error) {
      log.warn({ err: error }, 'the events of other processes cannot be seen at the moment');
    }
  }
}
