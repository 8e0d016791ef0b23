// What one provider's format for films is to the one way of ordering them (ordered.ts): requests and answers, without
// the waiting and the fetching.
import { Problem } from '../../../kernel/problem.ts';
import type { Size, VideoCall } from '../hub/media-model.ts';
import type { UpstreamRequest } from '../upstream/client.ts';

export interface VideoAdapter {
  keyHeader: UpstreamRequest['keyHeader'];
  /** What `provider_options` may not say, because the request has members for it or because it is an address. */
  reservedMembers: ReadonlySet<string>;
  /** Throws a 422 for what the format has no word for. */
  check(call: VideoCall): void;
  /** Paths are below the provider's address. */
  submission(
    call: VideoCall,
    upstreamModel: string,
  ): { path: string; body: string | Uint8Array; headers?: Readonly<Record<string, string>> };
  /** The order's name out of the answer to it; anything but a text where there is none. */
  jobId(answer: unknown): unknown;
  statusPath(jobId: string): string;
  readStatus(answer: unknown, jobId: string): VideoStatus;
  /** Where the provider is told that nobody waits any more; undefined where it does not listen to that. */
  cancelPath?(jobId: string): string;
}

/** How an order stands. A failure has the status that the same would have had at once. */
export type VideoStatus =
  | { state: 'waiting'; progress: number | undefined }
  | { state: 'failed'; status: number; code?: string | undefined; message?: string | undefined }
  | { state: 'ready'; url: string; seconds?: number | undefined };

/** The 422 for a member that cannot be said to this provider. */
export function unsupportedMember(member: string, words: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', words, { param: member });
}

/** Throws for more than one image to start from, which is as many as these formats have a place for. */
export function requireOneImage({ images }: VideoCall): void {
  if (images.length > 1) throw unsupportedMember('images', 'This model starts from one image at most.');
}

/** Throws for what the call says beyond this. */
export function requireAbsent(call: VideoCall, members: readonly ('seed' | 'framesPerSecond')[]): void {
  const names = { seed: 'seed', framesPerSecond: 'fps' };
  const said = members.find((member) => call[member] !== undefined);
  if (said !== undefined)
    throw unsupportedMember(names[said], `The provider of this model has no ${names[said]} for films.`);
}

/** The size in the words of providers that know films by their lines and their shape. */
export function resolutionOf(
  { width, height }: Size,
  lines: Readonly<Record<number, string>>,
): { resolution: string; aspectRatio: string } | undefined {
  const [long, short] = width > height ? [width, height] : [height, width];
  const resolution = lines[short];
  // 854 is as near to 16:9 of 480 lines as whole pixels come.
  if (resolution === undefined || Math.abs(long - (short * 16) / 9) > 1) return undefined;
  return { resolution, aspectRatio: width > height ? '16:9' : '9:16' };
}

// Failures that a caller can do something about; all others say more of the provider than of the request.
const callersOwn =
  /moderat|polic|safety|sentinel|block|content|prohibit|sensitive|filter|invalid|unsupported/i;

/** The status of a failure that was told by a code alone. */
export function statusOfCode(code: unknown): number {
  if (typeof code !== 'string') return 500;
  if (callersOwn.test(code)) return 400;
  return /rate_limit|too_many/i.test(code) ? 429 : 500;
}

/** A text, or undefined. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
