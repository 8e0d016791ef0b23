// A provider's video format for the shared code (async-video.ts): builds its requests and reads its answers.
import type { Size, VideoCall } from '../../hub/media-model.ts';
import type { UpstreamRequest } from '../../upstream/client.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/** All paths are below the provider's base URL. */
export interface VideoAdapter {
  keyHeader: UpstreamRequest['keyHeader'];
  /**
   * Members that `provider_options` may not have: those that the gateway sets in the request, and those that
   * would send the video elsewhere.
   */
  reservedMembers: ReadonlySet<string>;
  /** Throws a 422 for a call that the format cannot express. */
  check(call: VideoCall): void;
  /** The request that submits a job. */
  submission(
    call: VideoCall,
    upstreamModel: string,
  ): { path: string; body: string | Uint8Array; headers?: Readonly<Record<string, string>> };
  /** The provider's id of the job in the answer to its submission; not a string when the answer has none. */
  jobId(answer: unknown): unknown;
  statusPath(jobId: string): string;
  readStatus(answer: unknown, jobId: string): VideoStatus;
  /** Absent when the provider cannot cancel. */
  cancelPath?(jobId: string): string;
}

/**
 * The state of a provider's job. `status` of a failure is the HTTP status that a
 * synchronous call would have had.
 */
export type VideoStatus =
  | { state: 'waiting'; progress: number | undefined }
  | { state: 'failed'; status: number; code?: string | undefined; message?: string | undefined }
  | { state: 'ready'; url: string; seconds?: number | undefined };

/** Throws a 422 for more than one image, since all these formats start from at most one. */
export function requireOneImage({ images }: VideoCall): void {
  if (images.length > 1) throw unsupportedMember('images', 'This model starts from one image at most.');
}

/** Throws a 422 when the call has one of the members. */
export function requireAbsent(call: VideoCall, members: readonly ('seed' | 'framesPerSecond')[]): void {
  const contractNames = { seed: 'seed', framesPerSecond: 'fps' };
  const member = members.find((candidate) => call[candidate] !== undefined);
  if (member === undefined) return;
  const name = contractNames[member];
  throw unsupportedMember(name, `"${name}" is not supported by the provider of this model; leave it out.`);
}

/**
 * The size as resolution and aspect ratio, for providers that take no pixels; undefined for a size that has
 * no such name.
 */
export function resolutionOf(
  { width, height }: Size,
  namesByLines: Readonly<Record<number, string>>,
): { resolution: string; aspectRatio: string } | undefined {
  const [longSide, shortSide] = width > height ? [width, height] : [height, width];
  const resolution = namesByLines[shortSide];
  // 16:9 within a pixel: 480 lines are 854 wide.
  if (resolution === undefined || Math.abs(longSide - (shortSide * 16) / 9) > 1) return undefined;
  return { resolution, aspectRatio: width > height ? '16:9' : '9:16' };
}

// Failure codes that the request has caused; all other codes count as failures of the provider.
const requestFailure =
  /moderat|polic|safety|sentinel|block|content|prohibit|sensitive|filter|invalid|unsupported/i;

/** The HTTP status for the error code of a failed job. */
export function statusOfCode(code: unknown): number {
  if (typeof code !== 'string') return 500;
  if (requestFailure.test(code)) return 400;
  return /rate_limit|too_many/i.test(code) ? 429 : 500;
}

export function nonEmptyText(candidate: unknown): string | undefined {
  return typeof candidate === 'string' && candidate !== '' ? candidate : undefined;
}
