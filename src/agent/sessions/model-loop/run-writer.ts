// Writes what a run produces. Text reaches subscribers at once and the database in checkpoints; every other event is
// durable before it counts. All writes go through one queue, so no event overtakes another.
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { isRolledBack } from '../event-log/commit-path.ts';
import type { OpenPart } from '../event-log/live-feed.ts';
import type { EventLog } from '../event-log/log.ts';
import { append, deleteCheckpoints, insertCheckpoint } from '../event-log/store.ts';
import type { LogEntry, SessionChange, UnitOfWork } from '../event-log/unit.ts';

export interface RunWriterOptions {
  sessionKey: string;
  runId: string;
  log: Pick<EventLog, 'append' | 'transact' | 'openPart' | 'addText' | 'closePart'>;
  clock: Clock;
  /** Called once, for the first write that nothing awaits and that fails. */
  onFailure(error: unknown): void;
}

export interface RunWriter {
  /**
   * Resolves after the events are durable, and with them all deferred ones. `also` writes in the same transaction. Throws
   * when the run has lost the session's fence.
   */
  record(
    events: readonly SessionEvent[],
    change?: SessionChange,
    also?: (unit: UnitOfWork) => Promise<void>,
  ): Promise<void>;
  /** Records what depends on the session's state: `make` runs in the transaction that writes; null writes nothing. */
  recordFrom(
    make: (unit: UnitOfWork) => Promise<{ events: readonly LogEntry[]; change: SessionChange } | null>,
  ): Promise<void>;
  /** Written together with the next write. */
  defer(events: readonly SessionEvent[]): void;
  /** Text of a block; the first text of a block opens a part. */
  addText(type: PartType, blockId: string, delta: string): void;
  endText(type: PartType, blockId: string): void;
  /** The message of all later parts. */
  setMessage(messageId: string): void;
  /** Waits for the queue and returns the events that are still deferred, for the settlement. Nothing may be written after. */
  close(): Promise<{ events: SessionEvent[]; hasCheckpoints: boolean }>;
  /** Removes the run's parts from the live feed. */
  dispose(): void;
}

type PartType = OpenPart['partType'];

/** A part from its first text to the write that carries its `part.ended`. */
interface PartState {
  part: OpenPart;
  blockId: string;
  /** `opening`: its `part.started` is queued, and text waits in `early`. */
  phase: { name: 'opening'; early: string } | { name: 'open' };
  /** Characters in checkpoints. */
  savedLength: number;
}

// After a crash at most 250 ms of text may be missing; the other 150 ms are for a busy machine and for the commit.
const checkpointIntervalMs = 100;
const checkpointLength = 4 * 1024;

export function createRunWriter(options: RunWriterOptions): RunWriter {
  const { sessionKey, runId, log, clock, onFailure } = options;
  const queue = createWriteQueue(onFailure);
  const pending = createPendingEvents(options);
  /** Blocks that still get text. */
  const blocks = new Map<string, PartState>();
  /** Parts whose `part.ended` is not pending yet. */
  const openParts = new Set<PartState>();
  const checkpoints = createCheckpoints({ sessionKey, log, queue, pending, openParts });
  let messageId = '';

  function publishText({ part }: PartState, text: string): void {
    if (text !== '') log.addText(sessionKey, part.partId, text, clock.now().toISOString());
  }

  function openPart(partType: PartType, blockId: string): PartState {
    const part: OpenPart = { runId, messageId, partId: id('prt'), partType, startedSeq: 0, text: '' };
    const state: PartState = { part, blockId, phase: { name: 'opening', early: '' }, savedLength: 0 };
    openParts.add(state);
    queue.runInBackground(async () => {
      part.startedSeq = await pending.write([
        { type: 'part.started', messageId: part.messageId, partId: part.partId, partType },
      ]);
      log.openPart(sessionKey, part);
      const early = state.phase.name === 'opening' ? state.phase.early : '';
      state.phase = { name: 'open' };
      publishText(state, early);
    });
    return state;
  }

  function endPart(state: PartState): void {
    blocks.delete(blockKey(state.part.partType, state.blockId));
    // Queued behind the `part.started` of the part.
    queue.runInBackground(async () => {
      openParts.delete(state);
      pending.endPart(state);
      checkpoints.schedule();
    });
  }

  return {
    async record(events, change, also) {
      await queue.run(() => pending.write(events, change, also));
    },
    async recordFrom(make) {
      await queue.run(() => pending.writeFrom(make));
    },
    defer(events) {
      // Queued, because the end of an earlier part may be on its way.
      queue.runInBackground(async () => {
        pending.defer(events);
        checkpoints.schedule();
      });
    },
    addText(type, blockId, delta) {
      if (delta === '') return;
      const key = blockKey(type, blockId);
      const state = blocks.get(key) ?? openPart(type, blockId);
      blocks.set(key, state);
      if (state.phase.name === 'opening') state.phase.early += delta;
      else publishText(state, delta);
      if (state.part.text.length - state.savedLength >= checkpointLength) checkpoints.saveNow();
      else checkpoints.schedule();
    },
    endText(type, blockId) {
      const state = blocks.get(blockKey(type, blockId));
      if (state) endPart(state);
    },
    setMessage(next) {
      messageId = next;
    },
    async close() {
      for (const state of blocks.values()) endPart(state);
      await queue.idle();
      checkpoints.stop();
      return { events: pending.takeEvents(), hasCheckpoints: checkpoints.hasAny() };
    },
    dispose() {
      checkpoints.stop();
      for (const { part } of openParts) log.closePart(sessionKey, part.partId);
      pending.closeParts();
    },
  };
}

function blockKey(type: PartType, blockId: string): string {
  return `${type}:${blockId}`;
}

interface WriteQueue {
  /** Runs after all earlier work. Throws when earlier background work has failed. */
  run<T>(work: () => Promise<T>): Promise<T>;
  runInBackground(work: () => Promise<unknown>): void;
  idle(): Promise<unknown>;
}

function createWriteQueue(onFailure: (error: unknown) => void): WriteQueue {
  let tail: Promise<unknown> = Promise.resolve();
  let hasFailed = false;

  function run<T>(work: () => Promise<T>): Promise<T> {
    const result = tail.then(() => {
      if (hasFailed) throw runLost();
      return work();
    });
    tail = result.catch(() => {});
    return result;
  }

  return {
    run,
    runInBackground(work) {
      run(work).catch((error: unknown) => {
        if (hasFailed) return;
        hasFailed = true;
        onFailure(error);
      });
    },
    idle: () => tail,
  };
}

interface PendingEvents {
  defer(events: readonly SessionEvent[]): void;
  endPart(state: PartState): void;
  /** Writes the pending events and these behind them; returns the seq of the last one. */
  write(
    events: readonly SessionEvent[],
    change?: SessionChange,
    also?: (unit: UnitOfWork) => Promise<void>,
  ): Promise<number>;
  writeFrom(make: Parameters<RunWriter['recordFrom']>[0]): Promise<number | null>;
  isEmpty(): boolean;
  takeEvents(): SessionEvent[];
  closeParts(): void;
}

/** Deferred events and ended parts, which go with the next write. */
function createPendingEvents({
  sessionKey,
  runId,
  log,
}: Pick<RunWriterOptions, 'sessionKey' | 'runId' | 'log'>): PendingEvents {
  const deferred: SessionEvent[] = [];
  const endedParts: PartState[] = [];

  async function flush(
    write: (before: readonly SessionEvent[], savedPartIds: readonly string[]) => Promise<number | null>,
  ): Promise<number | null> {
    const [events, parts] = [[...deferred], [...endedParts]];
    const drop = () => {
      deferred.splice(0, events.length);
      for (const { part } of endedParts.splice(0, parts.length)) log.closePart(sessionKey, part.partId);
    };
    const savedPartIds = parts.flatMap(({ savedLength, part }) => (savedLength > 0 ? [part.partId] : []));
    try {
      const seq = await write(events, savedPartIds);
      if (seq !== null) drop();
      return seq;
    } catch (error) {
      // The events may be committed, and must not be written twice.
      if (!isRolledBack(error)) drop();
      throw error;
    }
  }

  return {
    defer: (events) => void deferred.push(...events),
    endPart(state) {
      const { messageId, partId, partType, text } = state.part;
      deferred.push({ type: 'part.ended', messageId, partId, partType, text });
      endedParts.push(state);
    },
    async write(events, change, also) {
      const seq = await flush(async (before, savedPartIds) => {
        const all = [...before, ...events];
        const own = { sessionKey, runId, fence: runId, events: all, ...(change ? { change } : {}) };
        if (also === undefined && savedPartIds.length === 0) return log.append(own);
        return log.transact(async (unit) => {
          const headSeq = await append(unit, own, deleteCheckpoints(unit.tx, runId, savedPartIds));
          if (headSeq !== null) await also?.(unit);
          return headSeq;
        });
      });
      if (seq === null) throw runLost();
      return seq;
    },
    writeFrom: (make) =>
      flush((before, savedPartIds) =>
        log.transact(async (unit) => {
          const content = await make(unit);
          if (content === null) return null;
          const { change } = content;
          const events = [...before, ...content.events];
          return append(
            unit,
            { sessionKey, runId, fence: runId, events, change },
            deleteCheckpoints(unit.tx, runId, savedPartIds),
          );
        }),
      ),
    isEmpty: () => deferred.length === 0,
    takeEvents: () => deferred.splice(0),
    closeParts() {
      for (const { part } of endedParts) log.closePart(sessionKey, part.partId);
    },
  };
}

interface Checkpoints {
  /** Saves within 100 ms. */
  schedule(): void;
  saveNow(): void;
  stop(): void;
  hasAny(): boolean;
}

/** Makes the text of open parts durable, so that a crash loses little of it. */
function createCheckpoints({
  sessionKey,
  log,
  queue,
  pending,
  openParts,
}: {
  sessionKey: string;
  log: Pick<EventLog, 'transact'>;
  queue: WriteQueue;
  pending: PendingEvents;
  openParts: ReadonlySet<PartState>;
}): Checkpoints {
  let timer: NodeJS.Timeout | undefined;
  let isQueued = false;
  let hasAny = false;

  async function save(): Promise<void> {
    isQueued = false;
    const pieces = [...openParts]
      .filter(({ phase, part, savedLength }) => phase.name === 'open' && part.text.length > savedLength)
      .map((state) => ({ state, from: state.savedLength, text: state.part.text.slice(state.savedLength) }));
    if (!pending.isEmpty()) await pending.write([]);
    if (pieces.length === 0) return;
    hasAny = true;
    for (const { state, from, text } of pieces) state.savedLength = from + text.length;
    await log.transact(async (unit) => {
      for (const { state, from, text } of pieces)
        await insertCheckpoint(unit, { sessionKey, part: state.part, from, text });
    });
  }

  function stop(): void {
    clearTimeout(timer);
    timer = undefined;
  }

  function saveNow(): void {
    stop();
    if (isQueued) return;
    isQueued = true;
    queue.runInBackground(save);
  }

  return {
    schedule() {
      timer ??= setTimeout(saveNow, checkpointIntervalMs);
    },
    saveNow,
    stop,
    hasAny: () => hasAny,
  };
}

export function runLost(): Problem {
  return new Problem(
    'unavailable',
    'run_interrupted',
    'The run was ended: its lease expired, and another process of this agent settled it.',
  );
}
