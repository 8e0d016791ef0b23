// Billable units of media calls: what a request may come to, and what its result is charged for.
import { readSize, type MediaProperties, type Size } from '../hub/media-model.ts';
import type { JobKind, JobRequest } from '../jobs/job.ts';
import type { Units } from '../metering/price.ts';

// Longer than what models generate when the request names no duration.
const assumedVideoSeconds = 10;

/** What the request asks for: the upper bound of its charge. */
export function requestedUnits(kind: JobKind, request: JobRequest): Units {
  const {
    n,
    duration_seconds: seconds,
    size,
  } = request as { n?: number; duration_seconds?: number; size?: string };
  if (kind === 'image') return { image: n ?? 1 };
  return {
    videoSecond: seconds ?? assumedVideoSeconds,
    videoLines: size === undefined ? undefined : linesOf(readSize(size)),
  };
}

/** What was generated, at most what was requested: images, seconds and lines beyond the request are free. */
export function generatedUnits(kind: JobKind, request: JobRequest, files: readonly MediaProperties[]): Units {
  const requested = requestedUnits(kind, request);
  if (kind === 'image') return { image: Math.min(files.length, requested.image ?? 1) };
  const { duration_seconds: maxSeconds = Number.POSITIVE_INFINITY } = request as {
    duration_seconds?: number;
  };
  const maxLines = requested.videoLines ?? Number.POSITIVE_INFINITY;
  // A video without a duration in its header counts as long as requested.
  const seconds = files.map(({ durationSeconds }) =>
    Math.min(durationSeconds ?? requested.videoSecond ?? 0, maxSeconds),
  );
  return {
    videoLines: Math.min(Math.max(...files.map(linesOf)), maxLines),
    videoSecond: seconds.reduce((sum, each) => sum + each, 0),
  };
}

/** The lines by which videos are sold: the shorter side, in portrait and landscape. */
function linesOf({ width, height }: Size): number {
  return Math.min(width, height);
}

// No codec for speech uses less; the usual ones use far more.
const slowestBytesPerSecond = 750;
const usualBytesPerSecond = 16_000;

/** The longest that audio of this size can be, where its header names no duration. */
export function maxAudioSeconds(bytes: number, headerSeconds: number | null): number {
  return headerSeconds ?? bytes / slowestBytesPerSecond;
}

/** The seconds that a transcription is charged for, and where they come from. */
export type AudioCharge =
  | { source: 'provider'; seconds: number }
  /** The provider reported more than the bytes can hold; charged is the most that they can. */
  | { source: 'implausible'; seconds: number }
  | { source: 'header'; seconds: number }
  /** Estimated from the size, since neither the provider nor the header names a duration. */
  | { source: 'size'; seconds: number };

export function audioCharge({
  reportedSeconds,
  headerSeconds,
  bytes,
}: {
  reportedSeconds: number | null;
  headerSeconds: number | null;
  bytes: number;
}): AudioCharge {
  const maxSeconds = maxAudioSeconds(bytes, headerSeconds);
  if (reportedSeconds !== null)
    return reportedSeconds <= maxSeconds * 8 + 60
      ? { source: 'provider', seconds: reportedSeconds }
      : { source: 'implausible', seconds: maxSeconds };
  return headerSeconds === null
    ? { source: 'size', seconds: bytes / usualBytesPerSecond }
    : { source: 'header', seconds: headerSeconds };
}
