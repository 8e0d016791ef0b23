// The duration of MPEG audio (layers 1 to 3), which has no container: the sum of its frames. Their
// headers are read, and no sample is decoded.

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

/** Seconds by the frames of an MPEG audio file, after its ID3 tag; null for any other file. */
export function mp3Seconds(buffer: Buffer): number | null {
  const start = buffer.toString('latin1', 0, 3) === 'ID3' ? 10 + readSyncSafe(buffer, 6) : 0;
  const frame = frameAt(buffer, start);
  if (frame === null) return null;
  const isMono = ((buffer.readUInt32BE(start) >>> 6) & 3) === 3;
  const taggedFrames = frameCountInTag(buffer, start, { isMpeg1: frame.isMpeg1, isMono });
  const frameSeconds = sumOfFrames(buffer, start);
  // The frame with the tag has no audio. Decoders play every frame of the file, so a tag that declares fewer
  // frames is ignored.
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

// The maximum number of bytes examined as the start of a frame, which takes at most 50 ms for one file.
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

/** A number of ID3 in four bytes of seven bits each. */
function readSyncSafe(buffer: Buffer, offset: number): number {
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
