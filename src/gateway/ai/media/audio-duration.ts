// The duration of audio, from the headers of its container; no sample is decoded.
// Files without a duration, or with an impossible one, have null.

/** Seconds by the headers; null when they contain no duration. */
export function audioSeconds(bytes: Uint8Array): number | null {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let seconds: number | null = null;
  try {
    seconds = containerSeconds(buffer);
  } catch (error) {
    // A length in a header is beyond the end of the file.
    if (!(error instanceof RangeError)) throw error;
  }
  return seconds !== null && Number.isFinite(seconds) && seconds >= 0 && seconds < maxSeconds
    ? seconds
    : null;
}

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
      // Recorders that cannot seek leave 0 or a too large length; decoders then
      // play the rest of the file.
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
  // 0 in fragmented files.
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
 * The length of a box with its header: 1 stands for a 64-bit length behind the
 * name, 0 for the rest.
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
  // Recordings made in a browser have none.
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
 * Id and content of the EBML element at the offset, not beyond `limit`; an element of unknown
 * length ends there. Null for bytes that are no element.
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
 * The bytes of an EBML number by its first byte: one more than its leading zero
 * bits (RFC 8794 §4.1).
 */
export function ebmlLength(firstByte: number): number {
  return Math.clz32(firstByte) - 24 + 1;
}

// Kilobits a second by index, for layers 1 to 3 of MPEG 1 and 2.
const bitRates = {
  v1: [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  ],
  v2: [
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
  ],
} as const;
const sampleRates = [44_100, 48_000, 32_000];

interface Frame {
  bytes: number;
  seconds: number;
  isMpeg1: boolean;
}

function mp3Seconds(buffer: Buffer): number | null {
  const start = buffer.toString('latin1', 0, 3) === 'ID3' ? 10 + syncSafe(buffer, 6) : 0;
  const frame = frameAt(buffer, start);
  if (frame === null) return null;
  const isMono = ((buffer.readUInt32BE(start) >>> 6) & 3) === 3;
  const taggedFrames = frameCountInTag(buffer, start, { isMpeg1: frame.isMpeg1, isMono });
  const frameSeconds = sumOfFrames(buffer, start);
  // The frame of the tag holds no audio. Decoders play every frame, so a tag that
  // declares fewer is ignored.
  return taggedFrames === null
    ? frameSeconds
    : Math.max(taggedFrames * frame.seconds, frameSeconds - frame.seconds);
}

/** Adds up all frames, which is exact for a variable bit rate too. */
function sumOfFrames(buffer: Buffer, start: number): number {
  let seconds = 0;
  const search = { firstFrame: start, candidatesLeft: maxCandidates };
  for (let offset = start; offset >= 0;) {
    const next = frameAt(buffer, offset);
    if (next !== null) {
      seconds += next.seconds;
      offset += next.bytes;
      continue;
    }
    // Decoders skip bytes that are not a frame.
    offset = nextFrame(buffer, offset + 1, search);
  }
  return seconds;
}

// Bytes of one file that are examined as the start of a frame: 50 ms at most.
const maxCandidates = 100_000;
// The bits of version, layer and sample rate, which do not change within a file.
const sameHeader = 0xfffe0c00;

interface FrameSearch {
  /** Offset of the first frame of the file. */
  firstFrame: number;
  candidatesLeft: number;
}

/** Offset of the next frame of the same kind, or -1. */
function nextFrame(buffer: Buffer, start: number, search: FrameSearch): number {
  const kind = buffer.readUInt32BE(search.firstFrame) & sameHeader;
  for (
    let offset = buffer.indexOf(0xff, start);
    offset >= 0 && offset + 4 <= buffer.length && search.candidatesLeft > 0;
    offset = buffer.indexOf(0xff, offset + 1)
  ) {
    search.candidatesLeft -= 1;
    if ((buffer.readUInt32BE(offset) & sameHeader) === kind && frameAt(buffer, offset) !== null)
      return offset;
  }
  return -1;
}

function syncSafe(buffer: Buffer, offset: number): number {
  return [0, 1, 2, 3].reduce((sum, index) => sum * 128 + (buffer.readUInt8(offset + index) & 0x7f), 0);
}

// The decoded frame headers by their twelve bits from the version to the padding. A long file has a
// million frames, so each of the 4,096 possible headers is decoded once.
const frames: (Frame | null | undefined)[] = Array.from({ length: 4_096 });

function frameAt(buffer: Buffer, offset: number): Frame | null {
  if (offset + 4 > buffer.length) return null;
  const header = buffer.readUInt32BE(offset);
  if (header >>> 21 !== 0x7ff) return null;
  const bits = (header >>> 9) & 0xfff;
  let frame = frames[bits];
  if (frame === undefined) {
    frame = decodeFrame(header);
    frames[bits] = frame;
  }
  return frame;
}

// MPEG 2.5, a reserved number, MPEG 2 and MPEG 1, by the bits of the version.
const rateDivisors = [4, 1, 2, 1];

function decodeFrame(header: number): Frame | null {
  const version = (header >>> 19) & 3;
  const layer = 4 - ((header >>> 17) & 3);
  const rate = sampleRates[(header >>> 10) & 3];
  if (version === 1 || layer === 4 || rate === undefined) return null;
  const isMpeg1 = version === 3;
  const bitsPerSecond = (bitRates[isMpeg1 ? 'v1' : 'v2'][layer - 1]?.[(header >>> 12) & 15] ?? 0) * 1000;
  if (bitsPerSecond === 0) return null;
  const sampleRate = rate / (rateDivisors[version] ?? 1);
  const samples = samplesPerFrame(layer, isMpeg1);
  const slot = layer === 1 ? 4 : 1;
  const bytes =
    (Math.floor((samples / 8 / slot) * (bitsPerSecond / sampleRate)) + ((header >>> 9) & 1)) * slot;
  return { bytes, seconds: samples / sampleRate, isMpeg1 };
}

function samplesPerFrame(layer: number, isMpeg1: boolean): number {
  if (layer === 1) return 384;
  return layer === 3 && !isMpeg1 ? 576 : 1152;
}

/**
 * The encoder's frame count in the Xing or Info tag, which replaces the audio of the
 * first frame; null without one.
 */
function frameCountInTag(
  buffer: Buffer,
  start: number,
  format: { isMpeg1: boolean; isMono: boolean },
): number | null {
  const offset = start + 4 + sideInformationBytes(format);
  const tag = buffer.toString('latin1', offset, offset + 4);
  if ((tag === 'Xing' || tag === 'Info') && (buffer.readUInt32BE(offset + 4) & 1) === 1)
    return buffer.readUInt32BE(offset + 8);
  return null;
}

/** The decoding parameters of a layer 3 frame, between its header and the tag. */
function sideInformationBytes({ isMpeg1, isMono }: { isMpeg1: boolean; isMono: boolean }): number {
  if (isMpeg1) return isMono ? 17 : 32;
  return isMono ? 9 : 17;
}
