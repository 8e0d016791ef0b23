// Splits a stream of server-sent events at the empty lines that end them, without parsing them.
// Lines end with LF, CR or CRLF.
import type { EventPattern } from './event-pattern.ts';

const lf = 0x0a;
const cr = 0x0d;

/** Splits the pieces of a stream into whole events, and buffers an unfinished event. */
export class EventSplitter {
  #piece: Buffer = Buffer.alloc(0);
  /** Where the next event begins in the piece. */
  #start = 0;
  // The pieces are joined once, when the event is complete: joining at each piece would be
  // quadratic.
  #buffered: Buffer[] = [];
  #bufferedLength = 0;
  #isLineEmpty = true;
  #wasLastCr = false;

  /** Takes the next piece; `next` must have returned undefined for the previous one. */
  feed(piece: Uint8Array): void {
    this.#piece = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
    this.#start = 0;
  }

  /** Length of the unfinished event so far. */
  get bufferedBytes(): number {
    return this.#bufferedLength;
  }

  /** Whether an event has begun and not ended. The LF of a CRLF that ended the last event begins none. */
  get hasUnfinishedEvent(): boolean {
    return this.#bufferedLength > 1 || (this.#bufferedLength === 1 && this.#buffered[0]?.[0] !== lf);
  }

  /** The next complete event; undefined when the piece has no further one. */
  next(): Buffer | undefined {
    const bytes = this.#piece;
    for (let offset = this.#start; offset < bytes.length; offset += 1) {
      const byte = bytes[offset];
      if (byte === lf && this.#wasLastCr) {
        // The LF of a CRLF; its CR has already ended the line.
        this.#wasLastCr = false;
        continue;
      }
      this.#wasLastCr = byte === cr;
      if (byte !== lf && byte !== cr) {
        this.#isLineEmpty = false;
        continue;
      }
      if (!this.#isLineEmpty) {
        this.#isLineEmpty = true;
        continue;
      }
      // An empty line ends the event. It includes the LF of a CRLF if that is in this piece.
      const isCrlf = byte === cr && bytes[offset + 1] === lf;
      if (isCrlf) this.#wasLastCr = false;
      return this.#take(isCrlf ? offset + 2 : offset + 1);
    }
    this.#bufferRest();
    return undefined;
  }

  /** The next event if it matches the pattern. */
  nextLike(pattern: EventPattern): { bytes: Buffer; textBytes: number } | undefined {
    if (this.#bufferedLength > 0) return undefined;
    const match = pattern.match(this.#piece, this.#start);
    if (match === undefined) return undefined;
    this.#wasLastCr = false;
    return { bytes: this.#take(match.end), textBytes: match.textBytes };
  }

  #take(end: number): Buffer {
    const tail = this.#piece.subarray(this.#start, end);
    this.#start = end;
    if (this.#bufferedLength === 0) return tail;
    const event = Buffer.concat([...this.#buffered, tail]);
    this.#buffered = [];
    this.#bufferedLength = 0;
    return event;
  }

  #bufferRest(): void {
    const remainingBytes = this.#piece.subarray(this.#start);
    this.#start = this.#piece.length;
    if (remainingBytes.length === 0) return;
    this.#buffered.push(remainingBytes);
    this.#bufferedLength += remainingBytes.length;
  }
}
