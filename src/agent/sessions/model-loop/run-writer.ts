// Writes the events and text of a run. Text reaches subscribers at once and the database in checkpoints;
// every other event is durable before it counts. All writes go through one queue, so they keep their order.
import type { Clock } from '../../../kernel/clock.ts';
import { id } from '../../../kernel/ids.ts';
import { retry } from '../../../kernel/async.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { isRolledBack } from '../event-log/commit-path.ts';
import type { OpenPart } from '../event-log/live-feed.ts';
import type { EventLog } from '../event-log/log.ts';
import { append, deleteCheckpoints, insertCheckpoint } from '../event-log/store.ts';
import type { LogEntry, SessionChange, UnitOfWork } from '../event-log/unit.ts';
import {
  databaseDelayMs,
  databaseWaitMs,
  isDatabaseUnavailable,
  untilAvailable,
} from '../runs/database-wait.ts';
import type { ProviderMetadata } from './message.ts';

export interface RunWriterOptions {
  sessionKey: string;
  runId: string;
  log: Pick<EventLog, 'append' | 'transact' | 'openPart' | 'addText' | 'closePart' | 'findEvent'>;
  clock: Clock;
  /** The event that started the run. */
  startSeq: number;
  /** Aborted to end the wait for an unavailable database. */
  signal: AbortSignal;
  /** Called once, for the first failure of a write that no caller awaits. */
  onFailure(error: unknown): void;
}

export interface RunWriter {
  /**
   * Resolves when the events and all deferred events are durable, with the seq of the last event.
   * `extraWrite` writes in the same transaction. Throws when the run is no longer the session's active run.
   */
  record(
    events: readonly SessionEvent[],
    change?: SessionChange,
    extraWrite?: (unit: UnitOfWork) => Promise<void>,
  ): Promise<number>;
  /**
   * Records events that depend on the session's state: `planWrite` is called in the transaction that writes
   * them. When it returns null, nothing is written. Its last event is one of the run, and no earlier write of
   * the run has an equal one. Resolves with the seq of the last event; with null when nothing was written,
   * also because the run is no longer the session's active run.
   */
  recordFrom(
    planWrite: (unit: UnitOfWork) => Promise<{ events: readonly LogEntry[]; change: SessionChange } | null>,
  ): Promise<number | null>;
  /** Writes the events together with the next write. */
  defer(events: readonly SessionEvent[]): void;
  /** Adds text to a block; the first text of a block opens a part. */
  addText(type: PartType, blockId: string, delta: string): void;
  /** Adds metadata that the provider expects back with the block; it is written with the end of the part. */
  addMetadata(type: PartType, blockId: string, metadata: ProviderMetadata): void;
  endText(type: PartType, blockId: string): void;
  /** Ends the parts that a broken stream has left open. */
  endAllTexts(): void;
  /** Sets the message of all later parts. */
  setMessage(messageId: string): void;
  /**
   * Waits for the queue and returns the events that are still deferred; the settlement writes them. Nothing
   * may be written after this call.
   */
  close(): Promise<{ events: SessionEvent[]; hasCheckpoints: boolean }>;
  /** Removes the run's parts from the live feed. */
  dispose(): void;
}

type PartType = OpenPart['partType'];

/** A part from its first text to the write that carries its `part.ended`. */
interface PartState {
  part: OpenPart;
  blockId: string;
  /** `opening`: its `part.started` is queued, and text waits in `earlyText`. */
  phase: { name: 'opening'; earlyText: string } | { name: 'open' };
  /** Characters in checkpoints. */
  savedLength: number;
  metadata: ProviderMetadata | undefined;
}

// A crash may lose at most 250 ms of text; the other 150 ms are for a busy machine and for the commit.
const checkpointIntervalMs = 100;
const checkpointLength = 4 * 1024;

export function createRunWriter(options: RunWriterOptions): RunWriter {
  const queue = createWriteQueue(options.onFailure);
  const pendingEvents = createPendingEvents(options);
  const texts = createTextParts(options, { queue, pending: pendingEvents });
  const { checkpoints } = texts;

  return {
    record(events, change, extraWrite) {
      const entries = events.map((event) => withMessageId(event, texts.messageId()));
      return queue.run(() => pendingEvents.write(entries, change, extraWrite));
    },
    recordFrom: (planWrite) => queue.run(() => pendingEvents.writeFrom(planWrite)),
    defer(events) {
      // Use the queue, because it may contain the end of an earlier part.
      queue.runInBackground(async () => {
        pendingEvents.defer(events);
        checkpoints.schedule();
      });
    },
    addText: texts.addText,
    addMetadata: texts.addMetadata,
    endText: texts.endText,
    endAllTexts: texts.endAllTexts,
    setMessage: texts.setMessage,
    async close() {
      texts.endAllTexts();
      await queue.waitUntilIdle();
      checkpoints.stop();
      return { events: pendingEvents.takeEvents(), hasCheckpoints: checkpoints.hasAny() };
    },
    dispose() {
      checkpoints.stop();
      texts.closeParts();
      pendingEvents.closeParts();
    },
  };
}

interface TextParts extends Pick<
  RunWriter,
  'addText' | 'addMetadata' | 'endText' | 'endAllTexts' | 'setMessage'
> {
  /** The message of all later parts. */
  messageId(): string;
  checkpoints: Checkpoints;
  /** Removes the parts without an end from the live feed. */
  closeParts(): void;
}

interface TextState {
  readonly options: RunWriterOptions;
  readonly queue: WriteQueue;
  readonly pending: PendingEvents;
  readonly checkpoints: Checkpoints;
  /** Blocks that still get text. */
  readonly blocks: Map<string, PartState>;
  /** Parts whose `part.ended` is not pending yet. */
  readonly openParts: Set<PartState>;
  messageId: string;
}

/** The parts that stream: their blocks, and their text in the live feed and in checkpoints. */
function createTextParts(
  options: RunWriterOptions,
  { queue, pending }: { queue: WriteQueue; pending: PendingEvents },
): TextParts {
  const openParts = new Set<PartState>();
  const checkpoints = createCheckpoints(options, { queue, pending, openParts });
  const blocks = new Map<string, PartState>();
  const texts: TextState = { options, queue, pending, checkpoints, blocks, openParts, messageId: '' };
  return {
    checkpoints,
    messageId: () => texts.messageId,
    setMessage(messageId) {
      texts.messageId = messageId;
    },
    addText(type, blockId, delta) {
      if (delta !== '') addText(texts, blockState(texts, type, blockId), delta);
    },
    addMetadata(type, blockId, metadata) {
      const state = blockState(texts, type, blockId);
      state.metadata = { ...state.metadata, ...metadata };
    },
    endText(type, blockId) {
      const state = blocks.get(blockKey(type, blockId));
      if (state) endPart(texts, state);
    },
    endAllTexts() {
      for (const state of blocks.values()) endPart(texts, state);
    },
    closeParts() {
      for (const { part } of openParts) options.log.closePart(options.sessionKey, part.partId);
    },
  };
}

function blockState(texts: TextState, type: PartType, blockId: string): PartState {
  const key = blockKey(type, blockId);
  const state = texts.blocks.get(key) ?? openPart(texts, type, blockId);
  texts.blocks.set(key, state);
  return state;
}

function openPart(texts: TextState, partType: PartType, blockId: string): PartState {
  const { options, queue, pending, openParts, messageId } = texts;
  const { sessionKey, runId, log } = options;
  const part: OpenPart = { runId, messageId, partId: id('prt'), partType, startedSeq: 0, text: '' };
  const state: PartState = {
    part,
    blockId,
    phase: { name: 'opening', earlyText: '' },
    savedLength: 0,
    metadata: undefined,
  };
  openParts.add(state);
  queue.runInBackground(async () => {
    part.startedSeq = await pending.write([
      { type: 'part.started', messageId: part.messageId, partId: part.partId, partType },
    ]);
    log.openPart(sessionKey, part);
    const earlyText = state.phase.name === 'opening' ? state.phase.earlyText : '';
    state.phase = { name: 'open' };
    publishText(options, part, earlyText);
  });
  return state;
}

function addText({ options, checkpoints }: TextState, state: PartState, delta: string): void {
  if (state.phase.name === 'opening') state.phase.earlyText += delta;
  else publishText(options, state.part, delta);
  if (state.part.text.length - state.savedLength >= checkpointLength) checkpoints.saveNow();
  else checkpoints.schedule();
}

/** Sends the text to the subscribers; the live feed appends it to the part. */
function publishText({ sessionKey, log, clock }: RunWriterOptions, { partId }: OpenPart, text: string): void {
  if (text !== '') log.addText(sessionKey, partId, text, clock.now().toISOString());
}

function endPart({ blocks, openParts, queue, pending, checkpoints }: TextState, state: PartState): void {
  blocks.delete(blockKey(state.part.partType, state.blockId));
  // The queue orders it after the `part.started` of the part.
  queue.runInBackground(async () => {
    openParts.delete(state);
    pending.endPart(state);
    checkpoints.schedule();
  });
}

/** Events of tools name the message that is being written. */
function withMessageId(event: SessionEvent, messageId: string): SessionEvent {
  switch (event.type) {
    case 'tool.started':
    case 'tool.output':
    case 'tool.failed':
    case 'tool.denied':
      return { ...event, messageId };
    default:
      return event;
  }
}

function blockKey(type: PartType, blockId: string): string {
  return `${type}:${blockId}`;
}

interface WriteQueue {
  /** Runs after all earlier work. Throws when earlier background work has failed. */
  run<T>(work: () => Promise<T>): Promise<T>;
  runInBackground(work: () => Promise<unknown>): void;
  waitUntilIdle(): Promise<unknown>;
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
    waitUntilIdle: () => tail,
  };
}

interface PendingEvents {
  defer(events: readonly SessionEvent[]): void;
  endPart(state: PartState): void;
  /** Writes the pending events followed by these; returns the seq of the last event. */
  write(
    events: readonly SessionEvent[],
    change?: SessionChange,
    extraWrite?: (unit: UnitOfWork) => Promise<void>,
  ): Promise<number>;
  writeFrom(planWrite: Parameters<RunWriter['recordFrom']>[0]): Promise<number | null>;
  isEmpty(): boolean;
  takeEvents(): SessionEvent[];
  closeParts(): void;
}

interface PendingState {
  readonly options: RunWriterOptions;
  readonly deferredEvents: SessionEvent[];
  readonly endedParts: PartState[];
  readonly retryWrite: ReturnType<typeof createRetryingWrite>;
}

/** Collects deferred events and ended parts for the next write. */
function createPendingEvents(options: RunWriterOptions): PendingEvents {
  const { sessionKey, log } = options;
  const deferredEvents: SessionEvent[] = [];
  const endedParts: PartState[] = [];
  const pending: PendingState = {
    options,
    deferredEvents,
    endedParts,
    retryWrite: createRetryingWrite(options),
  };
  return {
    defer: (events) => void deferredEvents.push(...events),
    endPart(state) {
      const { messageId, partId, partType, text } = state.part;
      const metadata = state.metadata === undefined ? {} : { providerMetadata: state.metadata };
      deferredEvents.push({ type: 'part.ended', messageId, partId, partType, text, ...metadata });
      endedParts.push(state);
    },
    async write(events, change, extraWrite) {
      const seq = await writeEvents(pending, events, change, extraWrite);
      if (seq === null) throw runLost();
      return seq;
    },
    writeFrom: (planWrite) => writeFromSession(pending, planWrite),
    isEmpty: () => deferredEvents.length === 0,
    takeEvents: () => deferredEvents.splice(0),
    closeParts() {
      for (const { part } of endedParts) log.closePart(sessionKey, part.partId);
    },
  };
}

function writeEvents(
  pending: PendingState,
  events: readonly SessionEvent[],
  change: SessionChange | undefined,
  extraWrite: ((unit: UnitOfWork) => Promise<void>) | undefined,
): Promise<number | null> {
  const { sessionKey, runId, log } = pending.options;
  const write: PendingWrite = (pendingEvents, savedPartIds) => {
    const allEvents = [...pendingEvents, ...events];
    const entry = { sessionKey, runId, fence: runId, events: allEvents, ...(change ? { change } : {}) };
    if (extraWrite === undefined && savedPartIds.length === 0) return log.append(entry);
    return log.transact(async (unit) => {
      const headSeq = await append(unit, entry, deleteCheckpoints(unit.tx, runId, savedPartIds));
      if (headSeq !== null) await extraWrite?.(unit);
      return headSeq;
    });
  };
  return flush(pending, write, () => events.at(-1));
}

function writeFromSession(
  pending: PendingState,
  planWrite: Parameters<RunWriter['recordFrom']>[0],
): Promise<number | null> {
  const { sessionKey, runId, log } = pending.options;
  // A second plan would find the session as the first one has changed it, so a write in doubt is recognized
  // by the last event of its plan.
  let lastPlannedEvent: SessionEvent | undefined;
  const write: PendingWrite = (pendingEvents, savedPartIds) =>
    log.transact(async (unit) => {
      const content = await planWrite(unit);
      if (content === null) return null;
      lastPlannedEvent = content.events.at(-1);
      const events = [...pendingEvents, ...content.events];
      return append(
        unit,
        { sessionKey, runId, fence: runId, events, change: content.change },
        deleteCheckpoints(unit.tx, runId, savedPartIds),
      );
    });
  return flush(pending, write, () => lastPlannedEvent);
}

type PendingWrite = (
  pendingEvents: readonly SessionEvent[],
  /** The ended parts that have checkpoints, which the write deletes. */
  savedPartIds: readonly string[],
) => Promise<number | null>;

/** Writes the pending events and forgets them, unless the write was rolled back or wrote nothing. */
async function flush(
  { options: { sessionKey, log }, deferredEvents, endedParts, retryWrite }: PendingState,
  write: PendingWrite,
  lastEventOfWrite: () => SessionEvent | undefined,
): Promise<number | null> {
  const [events, parts] = [[...deferredEvents], [...endedParts]];
  const drop = () => {
    deferredEvents.splice(0, events.length);
    for (const { part } of endedParts.splice(0, parts.length)) log.closePart(sessionKey, part.partId);
  };
  const savedPartIds = parts.flatMap(({ savedLength, part }) => (savedLength > 0 ? [part.partId] : []));
  try {
    const seq = await retryWrite(
      () => write(events, savedPartIds),
      () => lastEventOfWrite() ?? events.at(-1),
    );
    if (seq !== null) drop();
    return seq;
  } catch (error) {
    // The events may be committed, and must not be written twice.
    if (!isRolledBack(error)) drop();
    throw error;
  }
}

/**
 * Repeats a write while the database is unavailable. When the write may be committed, it searches
 * for its last event first: a run has one write at a time, so there is at most one such event.
 */
function createRetryingWrite({ sessionKey, runId, startSeq, log, clock, signal }: RunWriterOptions): (
  write: () => Promise<number | null>,
  /** The last event of the latest attempt. */
  lastEvent: () => SessionEvent | undefined,
) => Promise<number | null> {
  let lastSeq = startSeq;
  return async (write, lastEvent) => {
    const deadlineMs = clock.monotonicMs() + databaseWaitMs;
    let isInDoubt = false;
    const attempt = async (): Promise<number | null> => {
      const event = isInDoubt ? lastEvent() : undefined;
      const existing =
        event === undefined ? undefined : await log.findEvent({ sessionKey, runId, after: lastSeq, event });
      return existing ?? write();
    };
    const seq = await retry(attempt, {
      isRetryable(error) {
        isInDoubt ||= !isRolledBack(error);
        return isDatabaseUnavailable(error) && clock.monotonicMs() < deadlineMs;
      },
      delayMs: databaseDelayMs,
      clock,
      signal,
    });
    lastSeq = seq ?? lastSeq;
    return seq;
  };
}

interface Checkpoints {
  /** Saves checkpoints within 100 ms. */
  schedule(): void;
  saveNow(): void;
  stop(): void;
  hasAny(): boolean;
}

/** Makes the text of open parts durable, so that a crash loses little of it. */
function createCheckpoints(
  { sessionKey, log, clock, signal }: RunWriterOptions,
  {
    queue,
    pending,
    openParts,
  }: { queue: WriteQueue; pending: PendingEvents; openParts: ReadonlySet<PartState> },
): Checkpoints {
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
    const insert = () =>
      log.transact(async (unit) => {
        for (const { state, from, text } of pieces)
          await insertCheckpoint(unit, { sessionKey, part: state.part, from, text });
      });
    await untilAvailable(insert, { clock, signal });
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
