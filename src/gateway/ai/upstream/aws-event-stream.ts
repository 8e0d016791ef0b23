// Reads a stream of Amazon Bedrock's Converse format: binary frames of AWS's event stream
// encoding, each with two checksums, headers and a JSON payload. Fails a stream that ends
// before its message does.
import { crc32 } from 'node:zlib';
import { asRecord, parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import { invalidData, reportedError, truncatedProblem } from './events.ts';
import { topLevelMembers } from './json-members.ts';

/** One checked frame of the stream. */
export interface ConverseFrame {
  /** The whole frame with its checksums. */
  bytes: Buffer;
  /**
   * Whether the frame completes the answer or one of its parts; a frame with the usage may follow.
   */
  completesAnswer: boolean;
}

// Total length, length of the headers, and the checksum of both.
const preludeBytes = 12;
const checksumBytes = 4;
const minimumBytes = preludeBytes + checksumBytes;

/**
 * The frames up to the frame with the usage, grouped as they arrived. Throws a Problem for an
 * exception of the provider, for a frame that is damaged or too long, and for a connection that
 * closes before `messageStop`.
 */
export async function* readConverseFrames(
  body: AsyncIterable<Uint8Array>,
  { maxFrameBytes }: { maxFrameBytes: number },
): AsyncGenerator<ConverseFrame[]> {
  const splitter = new FrameSplitter(maxFrameBytes);
  let hasStopped = false;
  for await (const piece of body) {
    const frames: ConverseFrame[] = [];
    let failure: Problem | undefined;
    let isEnded = false;
    splitter.feed(piece);
    try {
      for (let bytes = splitter.next(); bytes !== undefined; bytes = splitter.next()) {
        const type = checkFrame(bytes);
        hasStopped ||= type === 'messageStop';
        isEnded = type === 'metadata';
        frames.push({ bytes, completesAnswer: type === 'messageStop' || type === 'contentBlockStop' });
        if (isEnded) break;
      }
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      failure = error;
    }
    // Deliver the complete frames that precede the failure first.
    if (frames.length > 0) yield frames;
    if (isEnded) return;
    if (failure !== undefined) throw failure;
  }
  if (!hasStopped || splitter.bufferedBytes > 0) throw truncatedProblem();
}

/** Splits the pieces of a body into frames by their lengths, and buffers an unfinished frame. */
class FrameSplitter {
  readonly #maxBytes: number;
  // The pieces are joined once, when a frame is complete: joining at each piece would be quadratic.
  #pieces: Buffer[] = [];
  #length = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bufferedBytes(): number {
    return this.#length;
  }

  feed(piece: Uint8Array): void {
    this.#pieces.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    this.#length += piece.byteLength;
  }

  /** The next whole frame, if it has arrived. Throws a Problem for an invalid length. */
  next(): Buffer | undefined {
    if (this.#length < preludeBytes) return undefined;
    const totalLength = this.#joinFirst(preludeBytes).readUInt32BE(0);
    if (totalLength < minimumBytes || totalLength > this.#maxBytes)
      throw invalidData('sent an event that is too long or damaged');
    if (this.#length < totalLength) return undefined;
    const bytes = this.#joinFirst(totalLength);
    const remainingBytes = bytes.subarray(totalLength);
    this.#pieces[0] = remainingBytes;
    if (remainingBytes.length === 0) this.#pieces.shift();
    this.#length -= totalLength;
    return bytes.subarray(0, totalLength);
  }

  /**
   * The first buffered piece, joined with the following pieces until it has at least `count` bytes.
   */
  #joinFirst(count: number): Buffer {
    let length = 0;
    let pieceCount = 0;
    while (length < count) {
      length += this.#pieces[pieceCount]?.length ?? 0;
      pieceCount += 1;
    }
    const headBytes = pieceCount === 1 ? this.#pieces[0] : Buffer.concat(this.#pieces.slice(0, pieceCount));
    this.#pieces.splice(0, pieceCount, headBytes as Buffer);
    return headBytes as Buffer;
  }
}

/** The type of the event. Throws a Problem for a damaged frame and for an exception. */
function checkFrame(bytes: Buffer): string {
  const headersEnd = preludeBytes + bytes.readUInt32BE(4);
  const payloadEnd = bytes.length - checksumBytes;
  if (
    headersEnd > payloadEnd ||
    crc32(bytes.subarray(0, preludeBytes - checksumBytes)) !== bytes.readUInt32BE(8) ||
    crc32(bytes.subarray(0, payloadEnd)) !== bytes.readUInt32BE(payloadEnd)
  )
    throw invalidData('sent a damaged event');
  const headers = readHeaders(bytes.subarray(preludeBytes, headersEnd));
  const payload = bytes.subarray(headersEnd, payloadEnd);
  if (headers.get(':message-type') !== 'event') throw exceptionProblem(headers, payload);
  if (topLevelMembers(payload) === undefined) throw invalidData('sent an event that is not a JSON object');
  return headers.get(':event-type') ?? '';
}

const stringType = 7;
// Lengths of the values by type: booleans (0 and 1), integers (2 to 5), time (8) and UUID (9). Byte arrays
// (6) and strings (7) begin with their length.
const valueBytes: Readonly<Record<number, number>> = { 0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16 };

/** The headers with string values. Throws a Problem when the bytes end within a header. */
function readHeaders(bytes: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  let offset = 0;
  const take = (count: number): Buffer => {
    if (offset + count > bytes.length) throw invalidData('sent a damaged event');
    offset += count;
    return bytes.subarray(offset - count, offset);
  };
  while (offset < bytes.length) {
    const name = take(take(1).readUInt8()).toString('utf8');
    const type = take(1).readUInt8();
    const value = take(valueBytes[type] ?? take(2).readUInt16BE());
    if (type === stringType) headers.set(name, value.toString('utf8'));
  }
  return headers;
}

// The HTTP statuses of the exceptions: an exception before the first byte is retried if its status
// is transient.
const statusOfException: Readonly<Record<string, number>> = {
  internalserverexception: 500,
  modelstreamerrorexception: 424,
  modeltimeoutexception: 408,
  serviceunavailableexception: 503,
  throttlingexception: 429,
  validationexception: 400,
};

function exceptionProblem(headers: ReadonlyMap<string, string>, payload: Buffer): Problem {
  const type = headers.get(':exception-type') ?? headers.get(':error-code') ?? '';
  const { message } = asRecord(parseJsonOrUndefined(payload.toString('utf8')));
  return reportedError(
    JSON.stringify({
      status: statusOfException[type.toLowerCase()],
      message: typeof message === 'string' ? message : headers.get(':error-message'),
    }),
  );
}
