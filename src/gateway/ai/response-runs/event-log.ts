// The events of one running stream in memory, for any number of readers. Its size is bounded: beyond it the
// oldest events are dropped, and a reader that needs them gets an error.
import { Problem } from '../../../kernel/problem.ts';

interface Entry<T> {
  /** Undefined for a comment, which has no place in the order. */
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
  /** The events after the sequence number, and then each new one; its reader must end it. Throws a 409 when they are dropped. */
  read(afterSequence: number): AsyncIterableIterator<T>;
  readonly bytes: number;
}

/** Called with the number of readers when it changes, and with each change of the size in bytes. */
export interface EventLogOptions {
  maxBytes: number;
  onReaders(count: number): void;
  onBytes(change: number): void;
}

// The objects of an event beside its text.
const entryBytes = 256;

export function createEventLog<T>(options: EventLogOptions): EventLog<T> {
  const { maxBytes, onReaders, onBytes } = options;
  let entries: Entry<T>[] = [];
  /** The number of dropped entries, so that a reader's place stays valid. */
  let droppedEntries = 0;
  /** The last sequence number that was dropped. */
  let droppedSequence = -1;
  let bytes = 0;
  let readers = 0;
  let ended: { failure: Problem | undefined } | undefined;
  const waiting = new Set<() => void>();

  function wake(): void {
    const all = [...waiting];
    waiting.clear();
    for (const resume of all) resume();
  }

  function resize(change: number): void {
    bytes += change;
    onBytes(change);
  }

  function dropFirst(count: number): void {
    for (const entry of entries.slice(0, count)) {
      droppedSequence = entry.sequence ?? droppedSequence;
      resize(-entry.bytes);
    }
    entries = entries.slice(count);
    droppedEntries += count;
  }

  /** Not a generator: `return` of a generator would wait for the next event. */
  function open(afterSequence: number): AsyncIterableIterator<T> {
    let place = droppedEntries;
    let isClosed = false;
    let resume: (() => void) | undefined;
    if (droppedSequence > afterSequence) place = -1;

    function close(): void {
      if (isClosed) return;
      isClosed = true;
      readers -= 1;
      onReaders(readers);
      if (resume !== undefined) waiting.delete(resume);
      resume?.();
    }

    function take(): IteratorResult<T> | undefined {
      for (;;) {
        if (isClosed) return { done: true, value: undefined };
        if (place < droppedEntries) throw streamNotAvailable();
        const entry = entries[place - droppedEntries];
        if (entry === undefined) break;
        place += 1;
        if (entry.sequence === undefined || entry.sequence > afterSequence)
          return { done: false, value: entry.item };
      }
      if (ended === undefined) return undefined;
      if (ended.failure !== undefined) throw ended.failure;
      return { done: true, value: undefined };
    }

    readers += 1;
    onReaders(readers);
    return {
      async next() {
        try {
          for (;;) {
            const result = take();
            if (result?.done === true) close();
            if (result !== undefined) return result;
            await new Promise<void>((resolve) => {
              resume = resolve;
              waiting.add(resolve);
            });
          }
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

  return {
    append({ bytes: ownBytes, ...entry }) {
      const allBytes = ownBytes + entryBytes;
      entries.push({ ...entry, bytes: allBytes });
      resize(allBytes);
      if (bytes > maxBytes) {
        // Half of the log at once, so that the array is not copied for each event.
        let count = 0;
        for (let rest = bytes; rest > maxBytes / 2 && count < entries.length - 1; count += 1)
          rest -= entries[count]?.bytes ?? 0;
        dropFirst(count);
      }
      wake();
    },
    end(failure) {
      ended ??= { failure };
      wake();
    },
    drop() {
      dropFirst(entries.length);
      wake();
    },
    read: open,
    get bytes() {
      return bytes;
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
