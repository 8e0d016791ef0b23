// The events of one running stream in memory, for any number of readers. The size of a log is bounded: when
// it is full, the oldest events are dropped, and a reader that still needs them gets an error.
import { Problem } from '../../../../kernel/problem.ts';

interface Entry<T> {
  /** Undefined for a comment, which has no sequence number. */
  sequence: number | undefined;
  item: T;
  bytes: number;
}

export interface EventLog<T> {
  append(entry: Entry<T>): void;
  /** Ends all readers once they have read the log; with `failure`, their next read throws it. */
  end(failure?: Problem): void;
  /** Drops all events. A reader that still needs one of them gets a 409. */
  drop(): void;
  /**
   * Reads the events after the sequence number, and then each new event; the caller must call `return` when
   * it stops reading early. Throws a 409 when events after that number have been dropped; `next` throws it
   * when the reader falls too far behind.
   */
  read(afterSequence: number): AsyncIterableIterator<T>;
  readonly bytes: number;
}

export interface EventLogOptions {
  maxBytes: number;
  /** Called with the new number of readers when it changes. */
  onReaders(count: number): void;
  /** Called with each change of the size; negative when events are dropped. */
  onBytes(change: number): void;
}

// Estimated memory of an event's objects, in addition to its text.
const entryBytes = 256;

export function createEventLog<T>(options: EventLogOptions): EventLog<T> {
  return new MemoryEventLog<T>(options);
}

/** Positions count all entries since the beginning of the stream, including comments and dropped entries. */
class MemoryEventLog<T> implements EventLog<T> {
  readonly #options: EventLogOptions;
  #entries: Entry<T>[] = [];
  #bytes = 0;
  #readers = 0;
  #droppedEntries = 0;
  /** The last sequence number that was dropped. */
  #droppedSequence = -1;
  #ending: { failure: Problem | undefined } | undefined;
  /** Callbacks that resume the readers waiting for the next entry. */
  readonly #waiting = new Set<() => void>();

  constructor(options: EventLogOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#bytes;
  }

  append({ bytes: textBytes, ...entry }: Entry<T>): void {
    const { maxBytes } = this.#options;
    const allBytes = textBytes + entryBytes;
    this.#entries.push({ ...entry, bytes: allBytes });
    this.#resize(allBytes);
    // Drop half of the log at once, so that the array is not copied for each event.
    if (this.#bytes > maxBytes) this.#dropFirst(countToFree(this.#entries, this.#bytes - maxBytes / 2));
    this.#wakeReaders();
  }

  end(failure?: Problem): void {
    this.#ending ??= { failure };
    this.#wakeReaders();
  }

  drop(): void {
    this.#dropFirst(this.#entries.length);
    this.#wakeReaders();
  }

  read(afterSequence: number): AsyncIterableIterator<T> {
    if (this.#droppedSequence > afterSequence) throw streamNotAvailable();
    this.#countReader(1);
    return new LogReader(this, { position: this.#droppedEntries, afterSequence });
  }

  /**
   * The entry at the position, or the end of the log; undefined while there is neither. Throws a 409 for a
   * dropped entry, and the failure that ended the log.
   */
  entryAt(position: number): Entry<T> | 'end' | undefined {
    if (position < this.#droppedEntries) throw streamNotAvailable();
    const entry = this.#entries[position - this.#droppedEntries];
    if (entry !== undefined) return entry;
    if (this.#ending?.failure !== undefined) throw this.#ending.failure;
    return this.#ending && 'end';
  }

  /** Calls `resume` at the next change of the log. */
  wait(resume: () => void): void {
    this.#waiting.add(resume);
  }

  /** Removes a reader. `resume` is the callback of a reader that may still wait. */
  leave(resume: (() => void) | undefined): void {
    this.#countReader(-1);
    if (resume === undefined) return;
    this.#waiting.delete(resume);
    resume();
  }

  #wakeReaders(): void {
    const readers = [...this.#waiting];
    this.#waiting.clear();
    for (const resume of readers) resume();
  }

  #dropFirst(count: number): void {
    for (const entry of this.#entries.slice(0, count)) {
      this.#droppedSequence = entry.sequence ?? this.#droppedSequence;
      this.#resize(-entry.bytes);
    }
    this.#entries = this.#entries.slice(count);
    this.#droppedEntries += count;
  }

  #resize(change: number): void {
    this.#bytes += change;
    this.#options.onBytes(change);
  }

  #countReader(change: number): void {
    this.#readers += change;
    this.#options.onReaders(this.#readers);
  }
}

/** How many of the oldest entries must go to free the bytes; the newest entry always stays. */
function countToFree(entries: readonly Entry<unknown>[], bytes: number): number {
  let count = 0;
  for (let excessBytes = bytes; excessBytes > 0 && count < entries.length - 1; count += 1)
    excessBytes -= entries[count]?.bytes ?? 0;
  return count;
}

/** A class, because `return` of an async generator would wait until its pending `next` has an event. */
class LogReader<T> implements AsyncIterableIterator<T> {
  readonly #log: MemoryEventLog<T>;
  readonly #afterSequence: number;
  #position: number;
  #isClosed = false;
  #resume: (() => void) | undefined;

  constructor(
    log: MemoryEventLog<T>,
    { position, afterSequence }: { position: number; afterSequence: number },
  ) {
    this.#log = log;
    this.#position = position;
    this.#afterSequence = afterSequence;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<T>> {
    try {
      const result = await this.#waitForNext();
      if (result.done === true) this.#close();
      return result;
    } catch (error) {
      this.#close();
      throw error;
    }
  }

  async return(): Promise<IteratorResult<T>> {
    this.#close();
    return { done: true, value: undefined };
  }

  async #waitForNext(): Promise<IteratorResult<T>> {
    for (;;) {
      const result = this.#readNext();
      if (result !== undefined) return result;
      await new Promise<void>((resolve) => {
        this.#resume = resolve;
        this.#log.wait(resolve);
      });
    }
  }

  /** Undefined while there is no further entry. */
  #readNext(): IteratorResult<T> | undefined {
    while (!this.#isClosed) {
      const entry = this.#log.entryAt(this.#position);
      if (entry === undefined) return undefined;
      if (entry === 'end') break;
      this.#position += 1;
      if (entry.sequence === undefined || entry.sequence > this.#afterSequence)
        return { done: false, value: entry.item };
    }
    return { done: true, value: undefined };
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#log.leave(this.#resume);
  }
}

export function streamNotAvailable(): Problem {
  return new Problem(
    'conflict',
    'stream_not_available',
    'The events of this response are not in the memory of this gateway; read it without stream.',
    { param: 'stream' },
  );
}
