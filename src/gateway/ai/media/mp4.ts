// Reads the size and duration of an MP4 video from its byte stream. Only the index (the
// moov box) is buffered: a video may be larger than the memory of this process. Other
// formats are not accepted.
import type { MediaProperties } from '../hub/media-model.ts';
import { findBox, mp4IndexSeconds } from './audio-duration.ts';

export interface Mp4Reader {
  /** Forwards the bytes unchanged. */
  passThrough(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array>;
  /** Null for a file that is not an MP4 or did not arrive completely. */
  properties(): MediaProperties | null;
}

// One minute of video has an index of a few hundred kilobytes.
const maxIndexBytes = 16 * 1024 * 1024;
const shortHeaderBytes = 8;
const longHeaderBytes = 16;

/**
 * Position of the reader: a file is a sequence of boxes, each a header with its
 * length and name, and a body.
 */
type ReaderState =
  | { phase: 'header'; bytes: Buffer; headerBytes: number }
  | { phase: 'body'; bytesLeft: number }
  | { phase: 'index'; bytesLeft: number; pieces: Uint8Array[] }
  | { phase: 'invalid' };

/** What has been read of a file. */
interface ReadProgress {
  state: ReaderState;
  boxes: number;
  video: MediaProperties | null;
}

/** Reads one file. */
export function createMp4Reader(): Mp4Reader {
  const file: ReadProgress = { state: betweenBoxes(), boxes: 0, video: null };
  return {
    async *passThrough(bytes) {
      for await (const piece of bytes) {
        read(file, piece);
        yield piece;
      }
      if (!isComplete(file.state)) file.state = { phase: 'invalid' };
    },
    properties: () => (file.state.phase === 'invalid' ? null : file.video),
  };
}

function read(file: ReadProgress, piece: Uint8Array): void {
  let rest = piece;
  while (rest.length > 0 && file.state.phase !== 'invalid')
    rest =
      file.state.phase === 'header' ? readHeader(file, file.state, rest) : readBody(file, file.state, rest);
}

/** Returns the bytes after the header. */
function readHeader(
  file: ReadProgress,
  { bytes, headerBytes }: Extract<ReaderState, { phase: 'header' }>,
  piece: Uint8Array,
): Uint8Array {
  const part = piece.subarray(0, headerBytes - bytes.length);
  const header = Buffer.concat([bytes, part]);
  if (header.length < headerBytes) file.state = { phase: 'header', bytes: header, headerBytes };
  else if (headerBytes === shortHeaderBytes && header.readUInt32BE(0) === 1)
    file.state = { phase: 'header', bytes: header, headerBytes: longHeaderBytes };
  else openBox(file, header);
  return piece.subarray(part.length);
}

function openBox(file: ReadProgress, header: Buffer): void {
  const name = header.toString('latin1', 4, 8);
  const length = boxLength(header);
  const isIndex = name === 'moov';
  const bytesLeft = length - header.length;
  file.boxes += 1;
  if ((file.boxes === 1 && name !== 'ftyp') || bytesLeft < 0 || (isIndex && length > maxIndexBytes))
    file.state = { phase: 'invalid' };
  else if (bytesLeft > 0)
    file.state = isIndex ? { phase: 'index', bytesLeft, pieces: [] } : { phase: 'body', bytesLeft };
  else {
    if (isIndex) file.video = videoProperties(Buffer.alloc(0));
    file.state = betweenBoxes();
  }
}

/** Returns the bytes after the box; none when the box continues in the next piece. */
function readBody(
  file: ReadProgress,
  box: Extract<ReaderState, { phase: 'body' | 'index' }>,
  piece: Uint8Array,
): Uint8Array {
  const part = piece.subarray(0, Math.min(box.bytesLeft, piece.length));
  box.bytesLeft -= part.length;
  if (box.phase === 'index') box.pieces.push(Uint8Array.from(part));
  if (box.bytesLeft === 0) {
    if (box.phase === 'index') file.video = videoProperties(Buffer.concat(box.pieces));
    file.state = betweenBoxes();
  }
  return piece.subarray(part.length);
}

function betweenBoxes(): ReaderState {
  return { phase: 'header', bytes: Buffer.alloc(0), headerBytes: shortHeaderBytes };
}

/**
 * The length of a box with its header. A length of 0 means that the box extends to the end of the
 * file, 1 that 64 bits of length follow.
 */
function boxLength(header: Buffer): number {
  const length = header.readUInt32BE(0);
  if (length === 0) return Number.POSITIVE_INFINITY;
  return length === 1 ? Number(header.readBigUInt64BE(8)) : length;
}

function isComplete(state: ReaderState): boolean {
  switch (state.phase) {
    case 'header':
      return state.bytes.length === 0;
    case 'body':
    case 'index':
      return state.bytesLeft === Number.POSITIVE_INFINITY;
    case 'invalid':
      return false;
  }
}

function videoProperties(index: Buffer): MediaProperties | null {
  try {
    const size = videoSize(index);
    return size && { mediaType: 'video/mp4', ...size, durationSeconds: mp4IndexSeconds(index) };
  } catch (error) {
    // A length in the index points beyond its end.
    if (!(error instanceof RangeError)) throw error;
    return null;
  }
}

// Real videos have a few tracks; an index could declare a million empty ones.
const maxTracks = 1_000;

/** The size of the first video track. */
function videoSize(index: Buffer): { width: number; height: number } | null {
  for (let start = 0, tracks = 0; tracks < maxTracks; tracks += 1) {
    const track = findBox(index, start, index.length, 'trak');
    if (track === null) return null;
    start = track.end;
    const header = findBox(index, track.start, track.end, 'tkhd');
    if (header === null) continue;
    // The last two members, as 16.16 fixed-point numbers. Audio tracks have 0.
    const [width, height] = [index.readUInt16BE(header.end - 8), index.readUInt16BE(header.end - 4)];
    if (width > 0 && height > 0) return { width, height };
  }
  return null;
}
