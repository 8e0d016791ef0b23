// The frame of one line of a segment: `CRC LENGTH NUMBER SYNCED TEXT` and a line feed. The four
// numbers have a fixed width in hexadecimal, so that an operator can read a segment with `less`.
// The CRC32 covers everything between itself and the line feed. SYNCED is the number up to which
// the writer knew its lines to be on disk: a line that is missing at or below it is damage, one
// above it may be the torn end of a write.
import { crc32 } from 'node:zlib';

export interface Frame {
  seq: number;
  syncedSeq: number;
  text: string;
}

export const maxTextBytes = 1024 * 1024;

const lineFeed = 10;
const space = 32;
const crcDigits = 8;
const numberDigits = 12;
const crcEnd = crcDigits + 1;
const lengthEnd = crcEnd + crcDigits + 1;
const seqEnd = lengthEnd + numberDigits + 1;
const headerBytes = seqEnd + numberDigits + 1;

/** The maximum size in bytes of a frame with this many UTF-16 units. */
export function maxFrameBytes(units: number): number {
  return headerBytes + units * 3 + 1;
}

/**
 * Writes a frame at an offset of a buffer with enough room, and returns the offset
 * after it. The text has no line feed.
 */
export function writeFrame(target: Buffer, offset: number, { seq, syncedSeq, text }: Frame): number {
  const length = target.write(text, offset + headerBytes, 'utf8');
  const end = offset + headerBytes + length;
  const numbers = ` ${toHex(length, crcDigits)} ${toHex(seq, numberDigits)} ${toHex(syncedSeq, numberDigits)} `;
  target.write(numbers, offset + crcDigits, 'latin1');
  target.write(toHex(crc32(target.subarray(offset + crcEnd, end)), crcDigits), offset, 'latin1');
  target[end] = lineFeed;
  return end + 1;
}

/** The frame at an offset and the offset after it; null where there is no whole, intact frame. */
export function readFrame(source: Buffer, offset: number): (Frame & { next: number }) | null {
  if (offset + headerBytes > source.length) return null;
  const length = parseHex(source, offset + crcEnd, crcDigits);
  if (length === null || length > maxTextBytes) return null;
  const end = offset + headerBytes + length;
  if (source[end] !== lineFeed) return null;
  if (parseHex(source, offset, crcDigits) !== crc32(source.subarray(offset + crcEnd, end))) return null;
  const seq = parseHex(source, offset + lengthEnd, numberDigits);
  const syncedSeq = parseHex(source, offset + seqEnd, numberDigits);
  if (seq === null || syncedSeq === null) return null;
  return { seq, syncedSeq, text: source.toString('utf8', offset + headerBytes, end), next: end + 1 };
}

/**
 * All intact frames of a segment in their order. Damaged bytes are skipped up
 * to the next line feed.
 */
export function* readFrames(segment: Buffer): Generator<Frame> {
  for (let offset = 0; offset < segment.length;) {
    const frame = readFrame(segment, offset);
    if (frame !== null) yield frame;
    const next = frame?.next ?? segment.indexOf(lineFeed, offset) + 1;
    if (next === 0) return;
    offset = next;
  }
}

function toHex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}

/** Null unless the text has this many lower-case hexadecimal digits and a space after them. */
function parseHex(source: Buffer, offset: number, digits: number): number | null {
  if (source[offset + digits] !== space) return null;
  let value = 0;
  for (let index = offset; index < offset + digits; index += 1) {
    const digit = hexDigit(source[index] ?? 0);
    if (digit === null) return null;
    value = value * 16 + digit;
  }
  return value;
}

function hexDigit(code: number): number | null {
  if (code >= 48 && code <= 57) return code - 48;
  if (code >= 97 && code <= 102) return code - 87;
  return null;
}
