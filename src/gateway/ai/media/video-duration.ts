// The playing time of a video in MP4 or WebM. Models read frames at fixed intervals, so even a small file has
// many tokens when it plays for long.
import { audioSeconds, findBox } from './audio-duration.ts';

type Box = { start: number; end: number };

const maxTracks = 100;

/**
 * Seconds by the header or by the durations of the samples, whichever is longer: players follow the samples,
 * and the header may declare less. Null when neither can be read.
 */
export function videoSeconds(bytes: Uint8Array): number | null {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const byHeader = audioSeconds(buffer);
  const bySamples = sampleSeconds(buffer);
  return byHeader === null || bySamples === null ? (byHeader ?? bySamples) : Math.max(byHeader, bySamples);
}

/** Seconds of the longest track of an MP4 file; null for other files and for fragmented MP4 files. */
function sampleSeconds(buffer: Buffer): number | null {
  if (buffer.toString('latin1', 4, 8) !== 'ftyp') return null;
  let longestSeconds: number | null = null;
  try {
    const movie = findBox(buffer, 0, buffer.length, 'moov');
    if (movie === null) return null;
    for (let start = movie.start, tracks = 0; tracks < maxTracks; tracks += 1) {
      const track = findBox(buffer, start, movie.end, 'trak');
      if (track === null) break;
      start = track.end;
      const seconds = trackSeconds(buffer, track);
      if (seconds !== null) longestSeconds = Math.max(longestSeconds ?? 0, seconds);
    }
  } catch (error) {
    // A length in the file points beyond its end.
    if (!(error instanceof RangeError)) throw error;
  }
  return longestSeconds;
}

function trackSeconds(buffer: Buffer, track: Box): number | null {
  const media = findBox(buffer, track.start, track.end, 'mdia');
  const header = media && findBox(buffer, media.start, media.end, 'mdhd');
  const times = media && sampleTimes(buffer, media);
  if (!header || !times) return null;
  const scale = buffer.readUInt32BE(header.start + (buffer.readUInt8(header.start) === 1 ? 20 : 12));
  const entries = Math.min(
    buffer.readUInt32BE(times.start + 4),
    Math.floor((times.end - times.start - 8) / 8),
  );
  let ticks = 0;
  for (let index = 0; index < entries; index += 1) {
    const offset = times.start + 8 + index * 8;
    ticks += buffer.readUInt32BE(offset) * buffer.readUInt32BE(offset + 4);
  }
  return scale > 0 && ticks > 0 ? ticks / scale : null;
}

function sampleTimes(buffer: Buffer, media: Box): Box | null {
  return ['minf', 'stbl', 'stts'].reduce<Box | null>(
    (box, name) => box && findBox(buffer, box.start, box.end, name),
    media,
  );
}
