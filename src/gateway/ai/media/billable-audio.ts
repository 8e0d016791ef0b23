// The seconds of audio for the hold of a call, and for its charge when the provider reports no duration.
import { audioSeconds, fastestLossyBytesPerSecond } from './audio-duration.ts';
import { secondsByFrames } from './audio-frames.ts';

// 16-bit stereo at 48 kHz.
const fastestBytesPerSecond = 192_000;
// Encoders pad the last frame, and some count the frames of their own delay.
const allowedExcess = { factor: 1.25, seconds: 1 };

/**
 * Null when the headers contain no duration, or when it cannot be checked; callers then use the size as the
 * bound. A header may declare less than the file contains, but decoders play the whole file. So the result is
 * at least the duration of the frames, and of the bytes at the highest rate.
 */
export function billableSeconds(bytes: Uint8Array): number | null {
  const seconds = audioSeconds(bytes);
  if (seconds === null) return null;
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = buffer.toString('latin1', 0, 4);
  // The duration of WAV is computed from its bytes, that of MP3 from its frames.
  if (magic === 'RIFF') return seconds;
  const isContainer = magic === 'fLaC' || magic === 'OggS' || magic === '\x1a\x45\xdf\xa3' || isMp4(buffer);
  const byFrames = isContainer ? secondsByFrames(buffer) : 0;
  if (byFrames === null) return null;
  const { factor, seconds: allowedSeconds } = allowedExcess;
  return Math.max(
    seconds,
    buffer.length / (magic === 'OggS' ? fastestLossyBytesPerSecond : fastestBytesPerSecond),
    byFrames > seconds * factor + allowedSeconds ? byFrames : 0,
  );
}

function isMp4(buffer: Buffer): boolean {
  return buffer.toString('latin1', 4, 8) === 'ftyp';
}
