// The playing time of audio by its frames. A header may declare any duration, but decoders play every frame
// in the file. Counting the frames, without decoding them, reveals headers that declare too little.
import { ebmlLength, findBox, readElement } from './audio-duration.ts';

// The maximum number of frames counted in one file: more than an hour of any codec, in at most 20 ms.
const maxFrames = 200_000;

/**
 * Seconds by frames of FLAC, Opus, Vorbis, AAC and ALAC. Null for other codecs and
 * for more than 200,000 frames.
 */
export function secondsByFrames(buffer: Buffer): number | null {
  try {
    if (isFlac(buffer)) return flacSeconds(buffer);
    if (buffer.toString('latin1', 0, 4) === 'OggS') return oggSeconds(buffer);
    if (isMp4(buffer)) return mp4Seconds(buffer);
    if (buffer.length > 4 && buffer.readUInt32BE(0) === 0x1a45dfa3) return webmSeconds(buffer);
  } catch (error) {
    // A length in the file points beyond its end.
    if (!(error instanceof RangeError)) throw error;
  }
  return null;
}

/**
 * Whether `secondsByFrames` counts all frames of the file that a decoder may play. A fragmented MP4 file has
 * some outside its tables, and Ogg and WebM files may have several streams.
 */
export function countsAllFrames(buffer: Buffer): boolean {
  if (isFlac(buffer)) return true;
  if (!isMp4(buffer) || findBox(buffer, 0, buffer.length, 'moof') !== null) return false;
  const tracks = [...mp4Tracks(buffer)];
  if (tracks.length >= maxTracks) return false;
  return tracks.every((track) => isVideoTrack(buffer, track) || mp4TrackSeconds(buffer, track) !== null);
}

function isVideoTrack(buffer: Buffer, track: Range): boolean {
  const medium = findBox(buffer, track.start, track.end, 'mdia');
  const handler = medium && findBox(buffer, medium.start, medium.end, 'hdlr');
  return handler !== null && buffer.toString('latin1', handler.start + 8, handler.start + 12) === 'vide';
}

function isFlac(buffer: Buffer): boolean {
  return buffer.toString('latin1', 0, 4) === 'fLaC';
}

export function isMp4(buffer: Buffer): boolean {
  return buffer.toString('latin1', 4, 8) === 'ftyp';
}

const flacRates = [
  0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000,
];

/**
 * FLAC frames have no length field: each is found by its sync code and verified by
 * the checksum of its header.
 */
function flacSeconds(buffer: Buffer): number | null {
  const fileRate = buffer.readUIntBE(18, 3) >>> 4;
  let seconds = 0;
  let candidates = 0;
  for (
    let offset = buffer.indexOf(0xff, 42);
    offset >= 0 && offset + 16 < buffer.length;
    offset = buffer.indexOf(0xff, offset + 1)
  ) {
    candidates += 1;
    if (candidates > maxFrames) return null;
    if (((buffer[offset + 1] ?? 0) & 0xfe) !== 0xf8) continue;
    const frame = flacFrame(buffer, offset);
    if (frame === null) continue;
    // Decoders differ in which of the two rates they use. The lower one gives the longer duration.
    const rate = Math.min(fileRate || Number.POSITIVE_INFINITY, frame.rate || Number.POSITIVE_INFINITY);
    if (Number.isFinite(rate)) seconds += frame.samples / rate;
  }
  return seconds;
}

function flacFrame(buffer: Buffer, offset: number): { samples: number; rate: number } | null {
  const codes = buffer.readUInt8(offset + 2);
  const [sizeCode, rateCode] = [codes >>> 4, codes & 15];
  if (sizeCode === 0 || rateCode === 15) return null;
  // The number of the frame or sample, coded like a character of UTF-8.
  const firstByte = buffer.readUInt8(offset + 4);
  const numberEnd = offset + 4 + (firstByte < 0x80 ? 1 : Math.clz32(~(firstByte << 24)));
  const size = readFlacSize(buffer, numberEnd, sizeCode);
  const rate = readFlacRate(buffer, size.end, rateCode);
  const checksum = buffer.readUInt8(rate.end);
  return crc8(buffer, offset, rate.end) === checksum ? { samples: size.value, rate: rate.value } : null;
}

/** A value in a frame's header, and the offset after it. */
interface HeaderValue {
  value: number;
  end: number;
}

/**
 * The samples of a frame: most codes stand for a number, two for bytes in the
 * header (RFC 9639 §9.1.1).
 */
function readFlacSize(buffer: Buffer, offset: number, code: number): HeaderValue {
  if (code === 1) return { value: 192, end: offset };
  if (code < 6) return { value: 144 * 2 ** code, end: offset };
  if (code === 6) return { value: buffer.readUInt8(offset) + 1, end: offset + 1 };
  if (code === 7) return { value: buffer.readUInt16BE(offset) + 1, end: offset + 2 };
  return { value: 2 ** code, end: offset };
}

/**
 * The samples a second; three codes stand for bytes in the header, in kHz, Hz and 10 Hz (RFC 9639
 * §9.1.2).
 */
function readFlacRate(buffer: Buffer, offset: number, code: number): HeaderValue {
  if (code === 12) return { value: buffer.readUInt8(offset) * 1_000, end: offset + 1 };
  if (code === 13) return { value: buffer.readUInt16BE(offset), end: offset + 2 };
  if (code === 14) return { value: buffer.readUInt16BE(offset) * 10, end: offset + 2 };
  return { value: flacRates[code] ?? 0, end: offset };
}

/** CRC-8 with the polynomial 0x07, as FLAC uses it. */
function crc8(buffer: Buffer, start: number, end: number): number {
  let crc = 0;
  for (let offset = start; offset < end; offset += 1) {
    crc ^= buffer[offset] ?? 0;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x80 ? 0x07 : 0)) & 0xff;
  }
  return crc;
}

const opusRate = 48_000;
const maxOpusSamples = 5_760;

/** Samples at 48 kHz of one Opus packet, RFC 6716 §3.1; 0 for an invalid one. */
function opusSamples(buffer: Buffer, offset: number, length: number): number {
  if (length < 1) return 0;
  const header = buffer.readUInt8(offset);
  const frames = opusFrameCount(buffer, offset, length);
  return Math.min(opusFrameSamples(header >>> 3) * frames, maxOpusSamples);
}

/**
 * Samples of each frame by the configuration: SILK 10 to 60 ms, hybrid 10 or 20
 * ms, CELT 2.5 to 20 ms.
 */
function opusFrameSamples(config: number): number {
  if (config < 12) return [480, 960, 1_920, 2_880][config & 3] ?? 0;
  if (config < 16) return [480, 960][config & 1] ?? 0;
  return 120 << (config & 3);
}

/** One frame, two, or the number in the second byte. */
function opusFrameCount(buffer: Buffer, offset: number, length: number): number {
  const code = buffer.readUInt8(offset) & 3;
  if (code === 0) return 1;
  if (code < 3) return 2;
  return length > 1 ? buffer.readUInt8(offset + 1) & 63 : 0;
}

/** All packets of an Ogg file with one audio stream or several in a row. */
function oggSeconds(buffer: Buffer): number | null {
  const headStart = 27 + buffer.readUInt8(26);
  const isOpus = buffer.toString('latin1', headStart, headStart + 8) === 'OpusHead';
  const isVorbis = buffer.toString('latin1', headStart + 1, headStart + 7) === 'vorbis';
  if (!isOpus && !isVorbis) return null;
  // A packet adds at most half of the longest block. Count half of that, since typical files also have short
  // blocks.
  const vorbisSeconds = isVorbis
    ? 2 ** (buffer.readUInt8(headStart + 28) >>> 4) / 4 / buffer.readUInt32LE(headStart + 12)
    : 0;
  let seconds = 0;
  let packets = 0;
  let pages = 0;
  let packetStart = -1;
  let packetBytes = 0;
  for (let page = 0; page >= 0 && page + 27 <= buffer.length;) {
    pages += 1;
    if (pages > maxFrames) return null;
    const segments = buffer.readUInt8(page + 26);
    let offset = page + 27 + segments;
    for (let index = 0; index < segments; index += 1) {
      const length = buffer.readUInt8(page + 27 + index);
      if (packetStart < 0) packetStart = offset;
      packetBytes += length;
      offset += length;
      if (length === 255) continue;
      packets += 1;
      if (packets > maxFrames) return null;
      // The first two packets of Opus are headers, the first three of Vorbis.
      if (isVorbis) seconds += packets > 3 ? vorbisSeconds : 0;
      else if (packets > 2) seconds += opusSamples(buffer, packetStart, packetBytes) / opusRate;
      [packetStart, packetBytes] = [-1, 0];
    }
    // Decoders search for the next page when one does not follow directly.
    page = buffer.toString('latin1', offset, offset + 4) === 'OggS' ? offset : buffer.indexOf('OggS', offset);
  }
  return seconds;
}

/** Samples in one frame of a codec in MP4; other codecs have frames of any length. */
const mp4FrameSamples: Readonly<Record<string, number>> = { mp4a: 1_024, alac: 4_096, Opus: 960 };
const maxTracks = 100;

interface Range {
  start: number;
  end: number;
}

/** The first 100 tracks. */
function* mp4Tracks(buffer: Buffer): Generator<Range> {
  const movie = findBox(buffer, 0, buffer.length, 'moov');
  if (movie === null) return;
  for (let start = movie.start, tracks = 0; tracks < maxTracks; tracks += 1) {
    const track = findBox(buffer, start, movie.end, 'trak');
    if (track === null) return;
    start = track.end;
    yield track;
  }
}

/**
 * Seconds of the longest audio track, by the number of frames in its table of sizes. Decoders find the frames
 * by this table, so they play no others.
 */
function mp4Seconds(buffer: Buffer): number | null {
  let longestSeconds: number | null = null;
  for (const track of mp4Tracks(buffer)) {
    const seconds = mp4TrackSeconds(buffer, track);
    if (seconds !== null) longestSeconds = Math.max(longestSeconds ?? 0, seconds);
  }
  return longestSeconds;
}

function mp4TrackSeconds(buffer: Buffer, track: Range): number | null {
  const table = ['mdia', 'minf', 'stbl'].reduce<Range | null>(
    (box, name) => box && findBox(buffer, box.start, box.end, name),
    track,
  );
  const description = table && findBox(buffer, table.start, table.end, 'stsd');
  const sizes = table && findBox(buffer, table.start, table.end, 'stsz');
  if (!description || !sizes) return null;
  const entry = description.start + 8;
  const samples = mp4FrameSamples[buffer.toString('latin1', entry + 4, entry + 8)];
  const rate = buffer.readUInt16BE(entry + 32);
  return samples === undefined || rate === 0 ? null : (buffer.readUInt32BE(sizes.start + 8) * samples) / rate;
}

// Element ids of WebM.
const webm = { segment: 0x18538067, cluster: 0x1f43b675, group: 0xa0, block: 0xa1, simpleBlock: 0xa3 };

/** The blocks of Opus in WebM, whose frames contain their length. */
function webmSeconds(buffer: Buffer): number | null {
  if (!buffer.subarray(0, 4_096).includes('A_OPUS')) return null;
  let seconds = 0;
  let elements = 0;
  for (let offset = 0; offset < buffer.length;) {
    elements += 1;
    if (elements > maxFrames) return null;
    const element = readElement(buffer, offset, buffer.length);
    if (element === null) break;
    const { id, start, end } = element;
    if (id === webm.segment || id === webm.cluster || id === webm.group) {
      offset = start;
      continue;
    }
    if (id === webm.block || id === webm.simpleBlock)
      seconds += webmBlockSamples(buffer, { start, end }) / opusRate;
    offset = end;
  }
  return seconds;
}

function webmBlockSamples(buffer: Buffer, { start, end }: { start: number; end: number }): number {
  const flags = start + ebmlLength(buffer.readUInt8(start)) + 2;
  const isLaced = (buffer.readUInt8(flags) & 6) !== 0;
  // Several packets in one block count with their maximum length.
  return isLaced
    ? (buffer.readUInt8(flags + 1) + 1) * maxOpusSamples
    : opusSamples(buffer, flags + 1, end - flags - 1);
}
