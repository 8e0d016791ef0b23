// The events of one running stream in memory, for any number of readers. Its size is bounded: beyond it the
// oldest events are dropped, and a reader that needs them gets an error.
import { Problem } from '../../../../kernel/problem.ts';

interface Entry<T> {
  /** Undefined for a comment, which has no sequence number. */
  sequence: number | undefined;
  item: T;
  bytes: number;
}

export interface EventLog<T> {
  append(entry: Entry<T>): void;
  /** Ends all readers, with the failure where there is one. */
  end(failure?: Problem): void;
  /** Drops all events: later readers, and those that are behind, get a 409. */
  drop(): void;
  /**
   * The events after the sequence number, and then each new one; the caller must end the reader. Throws a 409
   * when these events are dropped; `next` throws it when the reader falls too far behind.
   */
  read(afterSequence: number): AsyncIterableIterator<T>;
  readonly bytes: number;
}

/** Called with the number of readers when it changes, and with each change of the size in bytes. */
export interface EventLogOptions {
  maxBytes: number;
  onReaders(count: number): void;
  onBytes(change: number): void;
}

/** The entries in memory. A position counts all entries since the beginning of the stream. */
interface LogState<T> {
  entries: Entry<T>[];
  droppedEntries: number;
  /** The last sequence number that was dropped. */
  droppedSequence: number;
  ending: { failure: Problem | undefined } | undefined;
  /** Wakes the readers that wait for an entry. */
  readonly waiting: Set<() => void>;
}

// The objects of an event beside its text.
const entryBytes = 256;

export function createEventLog<T>({ maxBytes, onReaders, onBytes }: EventLogOptions): EventLog<T> {
  const log: LogState<T> = {
    entries: [],
    droppedEntries: 0,
    droppedSequence: -1,
    ending: undefined,
    waiting: new Set(),
  };
  let bytes = 0;
  let readers = 0;

  function resize(change: number): void {
    bytes += change;
    onBytes(change);
  }

  function countReader(change: number): void {
    readers += change;
    onReaders(readers);
  }

  function dropFirst(count: number): void {
    for (const entry of log.entries.slice(0, count)) {
      log.droppedSequence = entry.sequence ?? log.droppedSequence;
      resize(-entry.bytes);
    }
    log.entries = log.entries.slice(count);
    log.droppedEntries += count;
  }

  return {
    append({ bytes: textBytes, ...entry }) {
      const allBytes = textBytes + entryBytes;
      log.entries.push({ ...entry, bytes: allBytes });
      resize(allBytes);
      // Drop half of the log at once, so that the array is not copied for each event.
      if (bytes > maxBytes) dropFirst(countBeyond(log.entries, bytes - maxBytes / 2));
      wakeReaders(log);
    },
    end(failure) {
      log.ending ??= { failure };
      wakeReaders(log);
    },
    drop() {
      dropFirst(log.entries.length);
      wakeReaders(log);
    },
    read(afterSequence) {
      if (log.droppedSequence > afterSequence) throw streamNotAvailable();
      countReader(1);
      return openReader(log, afterSequence, () => countReader(-1));
    },
    get bytes() {
      return bytes;
    },
  };
}

/** The number of the oldest entries that have the bytes together; the newest entry is never counted. */
function countBeyond(entries: readonly Entry<unknown>[], bytes: number): number {
  let count = 0;
  for (let excessBytes = bytes; excessBytes > 0 && count < entries.length - 1; count += 1)
    excessBytes -= entries[count]?.bytes ?? 0;
  return count;
}

function wakeReaders({ waiting }: LogState<unknown>): void {
  const readers = [...waiting];
  waiting.clear();
  for (const resume of readers) resume();
}

/** Not a generator: `return` of a generator would wait for the next event. */
function openReader<T>(
  log: LogState<T>,
  afterSequence: number,
  onClose: () => void,
): AsyncIterableIterator<T> {
  let position = log.droppedEntries;
  let isClosed = false;
  let resume: (() => void) | undefined;

  function close(): void {
    if (isClosed) return;
    isClosed = true;
    onClose();
    if (resume !== undefined) log.waiting.delete(resume);
    resume?.();
  }

  /** Undefined while there is no further entry. */
  function readNext(): IteratorResult<T> | undefined {
    for (;;) {
      if (isClosed) return { done: true, value: undefined };
      if (position < log.droppedEntries) throw streamNotAvailable();
      const entry = log.entries[position - log.droppedEntries];
      if (entry === undefined) break;
      position += 1;
      if (entry.sequence === undefined || entry.sequence > afterSequence)
        return { done: false, value: entry.item };
    }
    if (log.ending?.failure !== undefined) throw log.ending.failure;
    return log.ending && { done: true, value: undefined };
  }

  async function waitForNext(): Promise<IteratorResult<T>> {
    for (;;) {
      const result = readNext();
      if (result !== undefined) return result;
      await new Promise<void>((resolve) => {
        resume = resolve;
        log.waiting.add(resolve);
      });
    }
  }

  return {
    async next() {
      try {
        const result = await waitForNext();
        if (result.done === true) close();
        return result;
      } catch (error) {
        close();
        throw error;
      }
    },
    async return() {
      close();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

export function streamNotAvailable(): Problem {
  return new Problem(
    'conflict',
    'stream_not_available',
    'The events of this response are not in the memory of this gateway; read it without stream.',
    { param: 'stream' },
  );
}
