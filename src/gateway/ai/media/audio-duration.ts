// The duration of audio, from the headers of its container; no sample is decoded.
// The result is null for a file without a duration, or with an impossible one.
import { mp3Seconds } from './mp3-duration.ts';

/** Seconds by the headers; null when they contain no duration. */
export function audioSeconds(bytes: Uint8Array): number | null {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let seconds: number | null = null;
  try {
    seconds = containerSeconds(buffer);
  } catch (error) {
    // A length in a header points beyond the end of the file.
    if (!(error instanceof RangeError)) throw error;
  }
  return seconds !== null && Number.isFinite(seconds) && seconds >= 0 && seconds < maxSeconds
    ? seconds
    : null;
}

// A week is longer than any file that a request or an answer can have.
const maxSeconds = 7 * 24 * 3600;

/** The highest byte rate of a lossy codec. */
export const fastestLossyBytesPerSecond = 64_000;

// Chunks, boxes and elements skipped on the way to one header. Real files have dozens; a file of 25
// MiB could have ten million empty ones, and walking them would block the event loop for seconds.
const maxParts = 100_000;

function containerSeconds(buffer: Buffer): number | null {
  const magic = buffer.toString('latin1', 0, 4);
  if (magic === 'RIFF' && buffer.toString('latin1', 8, 12) === 'WAVE') return wavSeconds(buffer);
  if (magic === 'fLaC') return flacSeconds(buffer);
  if (magic === 'OggS') return oggSeconds(buffer);
  if (buffer.toString('latin1', 4, 8) === 'ftyp') return mp4Seconds(buffer);
  if (buffer.length > 4 && buffer.readUInt32BE(0) === 0x1a45dfa3) return webmSeconds(buffer);
  return mp3Seconds(buffer);
}

const chunkNames = { fmt: fourLetters('fmt '), data: fourLetters('data') };

/** A four-letter name as its number in a file; comparing strings would take ten times as long. */
function fourLetters(name: string): number {
  return Buffer.from(name, 'latin1').readUInt32BE(0);
}

function wavSeconds(buffer: Buffer): number | null {
  let bytesPerSecond = 0;
  for (let offset = 12, parts = 0; offset + 8 <= buffer.length && parts < maxParts; parts += 1) {
    const name = buffer.readUInt32BE(offset);
    const length = buffer.readUInt32LE(offset + 4);
    if (name === chunkNames.fmt) bytesPerSecond = wavBytesPerSecond(buffer, offset + 8);
    if (name === chunkNames.data) {
      // A recorder that cannot seek leaves a length of 0, or one that is too large. Decoders then play the
      // rest of the file.
      const remainingBytes = buffer.length - offset - 8;
      const blockBytes = length === 0 ? remainingBytes : Math.min(length, remainingBytes);
      return bytesPerSecond > 0 ? blockBytes / bytesPerSecond : null;
    }
    offset += 8 + length + (length % 2);
  }
  return null;
}

// PCM, float, A-law, mu-law and the extensible format: decoders use the sample rate
// and the sample size alone.
const plainWavFormats = new Set([1, 3, 6, 7, 0xfffe]);

function wavBytesPerSecond(buffer: Buffer, offset: number): number {
  if (plainWavFormats.has(buffer.readUInt16LE(offset)))
    return buffer.readUInt32LE(offset + 4) * buffer.readUInt16LE(offset + 12);
  return Math.min(buffer.readUInt32LE(offset + 8), fastestLossyBytesPerSecond);
}

function flacSeconds(buffer: Buffer): number | null {
  // STREAMINFO is always the first block: 20 bits of sample rate, 8 of channels and
  // depth, 36 of sample count.
  const rate = buffer.readUIntBE(18, 3) >>> 4;
  const samples = (buffer.readUInt8(21) & 0x0f) * 2 ** 32 + buffer.readUInt32BE(22);
  return rate > 0 && samples > 0 ? samples / rate : null;
}

function oggSeconds(buffer: Buffer): number | null {
  const headStart = 27 + buffer.readUInt8(26);
  const isOpus = buffer.toString('latin1', headStart, headStart + 8) === 'OpusHead';
  const isVorbis = buffer.toString('latin1', headStart + 1, headStart + 7) === 'vorbis';
  if (!isOpus && !isVorbis) return null;
  const rate = isOpus ? 48_000 : buffer.readUInt32LE(headStart + 12);
  const skippedSamples = isOpus ? buffer.readUInt16LE(headStart + 10) : 0;
  const lastPage = buffer.lastIndexOf('OggS');
  const position = Number(buffer.readBigInt64LE(lastPage + 6));
  return rate > 0 && position >= skippedSamples ? (position - skippedSamples) / rate : null;
}

function mp4Seconds(buffer: Buffer): number | null {
  const movie = findBox(buffer, 0, buffer.length, 'moov');
  return movie && mp4IndexSeconds(buffer.subarray(movie.start, movie.end));
}

/** Seconds by the index (the content of the moov box) of an MP4 file. */
export function mp4IndexSeconds(buffer: Buffer): number | null {
  const header = findBox(buffer, 0, buffer.length, 'mvhd');
  if (!header) return null;
  const isLong = buffer.readUInt8(header.start) === 1;
  const scale = buffer.readUInt32BE(header.start + (isLong ? 20 : 12));
  const length = isLong
    ? Number(buffer.readBigUInt64BE(header.start + 24))
    : buffer.readUInt32BE(header.start + 16);
  // Fragmented files declare a length of 0.
  return scale > 0 && length > 0 ? length / scale : null;
}

/**
 * The content of the first box of that name between two offsets; null when there is
 * none within the first 100,000.
 */
export function findBox(
  buffer: Buffer,
  start: number,
  end: number,
  name: string,
): { start: number; end: number } | null {
  const nameNumber = fourLetters(name);
  for (let offset = start, parts = 0; offset + 8 <= end && parts < maxParts; parts += 1) {
    const { headerBytes, length } = readBoxSize(buffer, offset, end);
    if (length < headerBytes) return null;
    if (buffer.readUInt32BE(offset + 4) === nameNumber)
      return { start: offset + headerBytes, end: Math.min(offset + length, end) };
    offset += length;
  }
  return null;
}

/**
 * The length of a box, including its header. A declared length of 1 means that a 64-bit length follows the
 * name; 0 means the rest of the file.
 */
function readBoxSize(buffer: Buffer, offset: number, end: number): { headerBytes: number; length: number } {
  const length = buffer.readUInt32BE(offset);
  if (length === 1) return { headerBytes: 16, length: Number(buffer.readBigUInt64BE(offset + 8)) };
  return { headerBytes: 8, length: length === 0 ? end - offset : length };
}

// Element ids of EBML, the container format of WebM and Matroska.
const ebml = { segment: 0x18538067, info: 0x1549a966, scale: 0x2ad7b1, duration: 0x4489 };

function webmSeconds(buffer: Buffer): number | null {
  const segment = findElement(buffer, 0, buffer.length, ebml.segment);
  const info = segment && findElement(buffer, segment.start, segment.end, ebml.info);
  const duration = info && findElement(buffer, info.start, info.end, ebml.duration);
  // Recordings made in a browser have no duration.
  if (!info || !duration) return null;
  const scale = findElement(buffer, info.start, info.end, ebml.scale);
  const nanoseconds = scale
    ? buffer.readUIntBE(scale.start, Math.min(scale.end - scale.start, 6))
    : 1_000_000;
  const ticks =
    duration.end - duration.start === 4
      ? buffer.readFloatBE(duration.start)
      : buffer.readDoubleBE(duration.start);
  return (ticks * nanoseconds) / 1e9;
}

function findElement(
  buffer: Buffer,
  start: number,
  end: number,
  elementId: number,
): { start: number; end: number } | null {
  for (let offset = start, parts = 0; offset < end && parts < maxParts; parts += 1) {
    const element = readElement(buffer, offset, end);
    if (element === null) return null;
    if (element.id === elementId) return element;
    offset = element.end;
  }
  return null;
}

/**
 * Id and content of the EBML element at the offset. An element that is longer than `limit`, or of unknown
 * length, ends at `limit`. Null for bytes that are not an element.
 */
export function readElement(
  buffer: Buffer,
  offset: number,
  limit: number,
): { id: number; start: number; end: number } | null {
  const idLength = ebmlLength(buffer.readUInt8(offset));
  if (idLength > 4) return null;
  const firstByte = buffer.readUInt8(offset + idLength);
  const sizeLength = ebmlLength(firstByte);
  if (sizeLength > 8) return null;
  let size = firstByte & (0xff >> sizeLength);
  let isUnknown = size === 0xff >> sizeLength;
  for (let index = 1; index < sizeLength; index += 1) {
    const byte = buffer.readUInt8(offset + idLength + index);
    isUnknown &&= byte === 0xff;
    size = size * 256 + byte;
  }
  const start = offset + idLength + sizeLength;
  return {
    id: buffer.readUIntBE(offset, idLength),
    start,
    end: isUnknown ? limit : Math.min(start + size, limit),
  };
}

/**
 * The length of an EBML number in bytes, by its first byte: one more than the leading zero bits of that byte
 * (RFC 8794 §4.1).
 */
export function ebmlLength(firstByte: number): number {
  return Math.clz32(firstByte) - 24 + 1;
}
