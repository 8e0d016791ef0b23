// The hub for pictures, films and sound: what such a model is to everything in this service, as model.ts is for
// language. A provider is a spoke behind these interfaces. What a model cannot do is thrown as a 422; nothing that a
// caller asked for is left out in silence.

/** Width and height in pixels. */
export interface Size {
  width: number;
  height: number;
}

export interface InputFile {
  content: Uint8Array;
  mediaType: string;
}

/** What pictures and films have in common. */
interface VisualCall {
  prompt: string;
  size: Size | undefined;
  /** Width divided by height is `width / height`. */
  aspectRatio: Size | undefined;
  seed: number | undefined;
  /** Images to start from. */
  images: readonly InputFile[];
  /** Members for the provider's own request. */
  options: Readonly<Record<string, unknown>>;
}

export interface ImageCall extends VisualCall {
  count: number;
}

export interface VideoCall extends VisualCall {
  durationSeconds: number | undefined;
  framesPerSecond: number | undefined;
}

/** How a running call is stopped and watched. */
export interface GenerationContext {
  signal: AbortSignal;
  /** The user or administrator that the call is for; owners take turns where the work is limited. */
  owner: string;
  /** From 0 to 1. */
  reportProgress(done: number): void;
}

/** What a picture or a film is, told from its own bytes. */
export interface MediaProperties extends Size {
  mediaType: string;
  /** Null for what stands still. */
  durationSeconds: number | null;
}

/** A picture or a film as bytes. */
export interface MediaFile extends MediaProperties {
  content: Uint8Array;
}

/** A film that is still where it was made, and too large to be held here: it goes from there into the storage. */
export interface RemoteMedia {
  /** Its bytes, from the beginning each time. Throws a Problem where they break off, are too many, or are no film's. */
  open(): AsyncIterable<Uint8Array>;
  /** What went by, once it has gone by whole. */
  properties(): MediaProperties;
}

export interface VisualModel<Call> {
  /** Throws what can be known before the work begins. */
  check(call: Call): void;
  generate(call: Call, progress: GenerationContext): Promise<MediaFile[]>;
}

export type ImageModel = VisualModel<ImageCall>;
export type VideoModel = VisualModel<VideoCall>;

/** A model whose provider takes an order and makes the film in its own time. An order is paid for when it is placed. */
export interface AsyncVideoModel {
  /** Throws what can be known before an order. */
  check(call: VideoCall): void;
  /** The name by which the provider knows the order. */
  submit(call: VideoCall, signal: AbortSignal): Promise<string>;
  /** Waits until the film can be had. */
  fetchResult(orderId: string, progress: GenerationContext): Promise<RemoteMedia>;
  /** Tells the provider that nobody waits any more, where it listens to that. */
  cancel(orderId: string): Promise<void>;
}

export type SpeechFormat = 'wav' | 'mp3' | 'opus' | 'aac' | 'flac' | 'pcm';

export interface SpeechCall {
  text: string;
  voice: string | undefined;
  format: SpeechFormat | undefined;
  /** Twice as fast is 2. */
  speed: number | undefined;
  language: string | undefined;
  instructions: string | undefined;
  /** As in `Progress`. */
  owner: string;
  signal: AbortSignal;
}

export interface SpeechAnswer {
  format: SpeechFormat;
  /** To be read once. */
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
  /** A language tag, or null where the model does not tell. */
  language: string | null;
  durationSeconds: number | null;
}

export interface TranscriptionModel {
  generate(call: TranscriptionCall): Promise<TranscriptionAnswer>;
}

/** `1024x768`, whose shape the contract has checked. */
export function readSize(text: string): Size {
  const [width = 0, height = 0] = text.split(/[x:]/).map(Number);
  return { width, height };
}
