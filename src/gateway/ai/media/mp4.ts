// What an MP4 is, told while its bytes go by and none of them are held but its index: a film may be larger than what
// this process should have in memory. Anything else is no film, whatever somebody says of it.
import { findBox, mp4IndexSeconds } from './audio-duration.ts';
import type { MediaProperties } from '../hub/media-model.ts';

export interface Mp4Reader {
  /** Hands the bytes on as they are. */
  passThrough(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array>;
  /** Null for what was no film, or did not go by whole. */
  properties(): MediaProperties | null;
}

// A minute of film has an index of a few hundred kilobytes.
const mostIndexBytes = 16 * 1024 * 1024;
const [shortHead, longHead] = [8, 16];

/** Reads one film. */
export function createMp4Reader(): Mp4Reader {
  let head = Buffer.alloc(0);
  let headBytes = shortHead;
  /** Of the box that is going by: what is still to come, and its pieces where they are wanted. */
  let left = 0;
  let index: Uint8Array[] | undefined;
  let boxes = 0;
  let isFilm = true;
  let found: MediaProperties | null = null;

  function take(piece: Uint8Array): void {
    for (let rest = piece; isFilm && rest.length > 0;) {
      if (left > 0) {
        const part = rest.subarray(0, Math.min(left, rest.length));
        if (index !== undefined) index.push(Uint8Array.from(part));
        left -= part.length;
        rest = rest.subarray(part.length);
        if (left === 0) closeBox();
        continue;
      }
      const part = rest.subarray(0, headBytes - head.length);
      head = Buffer.concat([head, part]);
      rest = rest.subarray(part.length);
      if (head.length < headBytes) return;
      if (headBytes === shortHead && head.readUInt32BE(0) === 1) headBytes = longHead;
      else openBox();
    }
  }

  function openBox(): void {
    const short = head.readUInt32BE(0);
    const name = head.toString('latin1', 4, 8);
    // 0 is a box that goes on to the end.
    const length =
      short === 0 ? Number.POSITIVE_INFINITY : short === 1 ? Number(head.readBigUInt64BE(8)) : short;
    boxes += 1;
    const isIndex = name === 'moov';
    if ((boxes === 1 && name !== 'ftyp') || length < headBytes || (isIndex && length > mostIndexBytes))
      isFilm = false;
    left = length - headBytes;
    index = isIndex ? [] : undefined;
    head = Buffer.alloc(0);
    headBytes = shortHead;
    if (left === 0) closeBox();
  }

  function closeBox(): void {
    if (index !== undefined) found = filmOf(Buffer.concat(index));
    index = undefined;
  }

  return {
    async *passThrough(bytes) {
      for await (const piece of bytes) {
        take(piece);
        yield piece;
      }
      if (head.length > 0 || (left > 0 && left !== Number.POSITIVE_INFINITY)) isFilm = false;
    },
    properties: () => (isFilm ? found : null),
  };
}

function filmOf(movie: Buffer): MediaProperties | null {
  try {
    const size = pictureSize(movie);
    return size && { mediaType: 'video/mp4', ...size, durationSeconds: mp4IndexSeconds(movie) };
  } catch (error) {
    // A length that points past the end makes it an index that says nothing.
    if (!(error instanceof RangeError)) throw error;
    return null;
  }
}

// Films have a few; an index could have a million empty ones.
const maximumTracks = 1_000;

function pictureSize(movie: Buffer): { width: number; height: number } | null {
  for (let from = 0, tracks = 0; tracks < maximumTracks; tracks += 1) {
    const track = findBox(movie, from, movie.length, 'trak');
    if (track === null) return null;
    from = track.to;
    const header = findBox(movie, track.from, track.to, 'tkhd');
    // The last two members, each with a fraction of 16 bits; those of sound are 0.
    const [width, height] = header
      ? [movie.readUInt16BE(header.to - 8), movie.readUInt16BE(header.to - 4)]
      : [0, 0];
    if (width > 0 && height > 0) return { width, height };
  }
  return null;
}
