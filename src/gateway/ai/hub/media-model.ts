// The common interface of image, video and audio models; language-model.ts is its
// counterpart for text. Handlers call it and each provider implements it. A request
// that a model does not support is a 422; no member is dropped silently.

/** Width and height in pixels. */
export interface Size {
  width: number;
  height: number;
}

export interface InputFile {
  content: Uint8Array;
  mediaType: string;
}

/** The common part of image and video calls. */
interface VisualCall {
  prompt: string;
  size: Size | undefined;
  /** Width divided by height is `width / height`. */
  aspectRatio: Size | undefined;
  seed: number | undefined;
  /** Images to start from. */
  images: readonly InputFile[];
  /** Provider-specific members, added to the request to the provider. */
  options: Readonly<Record<string, unknown>>;
}

export interface ImageCall extends VisualCall {
  count: number;
}

export interface VideoCall extends VisualCall {
  durationSeconds: number | undefined;
  framesPerSecond: number | undefined;
}

/** How a running call is aborted, attributed and observed. */
export interface GenerationContext {
  signal: AbortSignal;
  /** The user or administrator who made the call; limited resources are scheduled fairly between owners. */
  owner: string;
  /** From 0 to 1. */
  reportProgress(share: number): void;
}

/** The properties of a file as read from its bytes, never from a declared value. */
export interface MediaProperties extends Size {
  mediaType: string;
  /** Null for an image. */
  durationSeconds: number | null;
}

/** An image or a video in memory. */
export interface MediaFile extends MediaProperties {
  content: Uint8Array;
}

/**
 * A finished video on the provider's server. It may be larger than the memory of this process, so it is
 * streamed from there to the storage.
 */
export interface RemoteMedia {
  /**
   * Downloads the video, from the beginning at each call. Throws a Problem when the download is cut off,
   * too large or not a video.
   */
  open(): AsyncIterable<Uint8Array>;
  /** Available after `open` was read to its end. */
  properties(): MediaProperties;
}

export interface VisualModel<Call> {
  /** Throws a 400 or 422 for a call that cannot succeed. */
  check(call: Call): void;
  generate(call: Call, context: GenerationContext): Promise<MediaFile[]>;
}

export type ImageModel = VisualModel<ImageCall>;
export type VideoModel = VisualModel<VideoCall>;

/**
 * A model whose provider accepts a job and finishes it later. The provider charges
 * for a job when it is submitted.
 */
export interface AsyncVideoModel {
  /** Throws a 400 or 422 for a call that cannot succeed. */
  check(call: VideoCall): void;
  /** Resolves to the provider's id for the job. */
  submit(call: VideoCall, signal: AbortSignal): Promise<string>;
  /** Waits until the video is ready. Throws the Problem of a failed job. */
  fetchResult(jobId: string, context: GenerationContext): Promise<RemoteMedia>;
  /** Does nothing when the provider has no way to cancel. */
  cancel(jobId: string): Promise<void>;
}

export type SpeechFormat = 'wav' | 'mp3' | 'opus' | 'aac' | 'flac' | 'pcm';

export interface SpeechCall {
  text: string;
  voice: string | undefined;
  format: SpeechFormat | undefined;
  /** A factor: 2 is twice as fast. */
  speed: number | undefined;
  language: string | undefined;
  instructions: string | undefined;
  /** Limited resources are scheduled fairly between owners. */
  owner: string;
  signal: AbortSignal;
}

export interface SpeechAnswer {
  format: SpeechFormat;
  /** Can be read once. */
  content: AsyncIterable<Uint8Array>;
}

export interface SpeechModel {
  generate(call: SpeechCall): Promise<SpeechAnswer>;
}

export interface TranscriptionCall {
  audio: InputFile;
  fileName: string;
  language: string | undefined;
  prompt: string | undefined;
  signal: AbortSignal;
}

export interface TranscriptionAnswer {
  text: string;
  segments: { text: string; startSecond: number; endSecond: number }[];
  /** A language tag; null when the provider reports none. */
  language: string | null;
  durationSeconds: number | null;
}

export interface TranscriptionModel {
  generate(call: TranscriptionCall): Promise<TranscriptionAnswer>;
}

/** Reads a size or ratio such as `1024x768` or `16:9`, whose syntax the contract has checked. */
export function readSize(text: string): Size {
  const [width = 0, height = 0] = text.split(/[x:]/).map(Number);
  return { width, height };
}
