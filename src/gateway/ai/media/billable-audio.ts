// The seconds of audio for the hold of a call, and for its charge when the provider reports no duration.
import { audioSeconds, fastestLossyBytesPerSecond } from './audio-duration.ts';
import { countsAllFrames, isMp4, secondsByFrames } from './audio-frames.ts';

// 16-bit stereo at 48 kHz.
const usualBytesPerSecond = 192_000;
// Frames may last longer than the duration of a correct file: encoders pad the last frame, and some count the
// frames of their own delay. The factor is for the counts that are estimates, of Vorbis and of blocks with
// several packets in WebM.
const allowedExcess = { factor: 1.25, seconds: 1 };

/**
 * Null when the headers contain no duration, or when it cannot be checked; callers then use the size as the
 * bound. A header may declare less than the file contains, but decoders play the whole file. So the result is
 * the duration of the frames if they exceed the header by more than `allowedExcess`. Where frames may be
 * missing from the count, it is also at least the duration of the bytes at a high rate.
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
  const checkedSeconds = byFrames > seconds * factor + allowedSeconds ? byFrames : seconds;
  if (countsAllFrames(buffer)) return checkedSeconds;
  const bytesPerSecond = magic === 'OggS' ? fastestLossyBytesPerSecond : usualBytesPerSecond;
  return Math.max(checkedSeconds, buffer.length / bytesPerSecond);
}
