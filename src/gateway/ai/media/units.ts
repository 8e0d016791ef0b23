// Billable units of media calls: the maximum of a request, and the charged units of its result.
import { readSize, type MediaProperties, type Size } from '../hub/media-model.ts';
import type { JobKind, JobRequest } from '../jobs/job.ts';
import type { Units } from '../metering/price.ts';

// Assumed for a request without a duration, since it is longer than the default of every model.
const assumedVideoSeconds = 10;

/** The requested units: the upper bound of the charge. */
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

/**
 * The generated units, limited to the requested ones: images, seconds and lines
 * beyond the request are free.
 */
export function generatedUnits(kind: JobKind, request: JobRequest, files: readonly MediaProperties[]): Units {
  const unitsOfRequest = requestedUnits(kind, request);
  if (kind === 'image') return { image: Math.min(files.length, unitsOfRequest.image ?? 1) };
  const { duration_seconds: maxSeconds = Number.POSITIVE_INFINITY } = request as {
    duration_seconds?: number;
  };
  const maxLines = unitsOfRequest.videoLines ?? Number.POSITIVE_INFINITY;
  // A video without a duration in its header counts with the requested duration.
  const seconds = files.map(({ durationSeconds }) =>
    Math.min(durationSeconds ?? unitsOfRequest.videoSecond ?? 0, maxSeconds),
  );
  return {
    videoLines: Math.min(Math.max(...files.map(linesOf)), maxLines),
    videoSecond: seconds.reduce((sum, duration) => sum + duration, 0),
  };
}

/** The lines by which videos are priced: the shorter side, in portrait and landscape. */
function linesOf({ width, height }: Size): number {
  return Math.min(width, height);
}

// The lowest rate of a speech codec, for the upper bound, and a typical rate, for the estimate.
const slowestBytesPerSecond = 750;
const usualBytesPerSecond = 16_000;
// A report is implausible only when it is far above the maximum of the file.
const toleratedReport = { factor: 8, seconds: 60 };

/** The duration in the header, or else the longest possible duration of audio of this size. */
export function maxAudioSeconds(bytes: number, headerSeconds: number | null): number {
  return headerSeconds ?? bytes / slowestBytesPerSecond;
}

/** The charged seconds of a transcription, and their source. */
export type AudioCharge =
  | { source: 'provider'; seconds: number }
  /** The provider reported more than the bytes can contain; their maximum is charged. */
  | { source: 'implausible'; seconds: number }
  | { source: 'header'; seconds: number }
  /** Estimated from the size, since neither the provider nor the header has a duration. */
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
    return reportedSeconds <= maxSeconds * toleratedReport.factor + toleratedReport.seconds
      ? { source: 'provider', seconds: reportedSeconds }
      : { source: 'implausible', seconds: maxSeconds };
  return headerSeconds === null
    ? { source: 'size', seconds: bytes / usualBytesPerSecond }
    : { source: 'header', seconds: headerSeconds };
}
