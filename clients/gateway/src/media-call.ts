// Shared by the image, speech and transcription models: their operations, the metadata of their
// answers, and warnings for options that the gateway does not support.

import type { CallOptions } from '../../shared/src/call-options.ts';
import type {
  AcceptedJob,
  CreateImageRequest,
  ImageJob,
  Speech,
  SynthesizeSpeechRequest,
  TranscribeAudioRequest,
  Transcription,
} from './generated/types.gen.ts';
import { markCallError, passableHeaders } from './language-model.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { SharedV3Warning } from '@ai-sdk/provider';

/** The operations that the models call. */
export interface MediaRoute {
  baseUrl: string;
  createImage(request: CreateImageRequest, options: CallOptions): Promise<AcceptedJob>;
  getImage(request: { job_id: string }, options: CallOptions): Promise<ImageJob>;
  cancelImage(request: { job_id: string }, options: CallOptions): Promise<ImageJob>;
  getMedia(
    link: { media_id: string; expires: number; signature: string },
    options: CallOptions,
  ): Promise<Blob>;
  synthesizeSpeech(request: SynthesizeSpeechRequest, options: CallOptions): Promise<Speech>;
  transcribeAudio(request: TranscribeAudioRequest, options: CallOptions): Promise<Transcription>;
}

/** The options that the AI SDK passes to image, speech and transcription models alike. */
interface SdkCallInput {
  headers?: Readonly<Record<string, string | undefined>> | undefined;
  abortSignal?: AbortSignal | undefined;
  providerOptions?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * Calls one operation; its error is marked so that the AI SDK can decide whether to retry. Once a job
 * is submitted, the client retries itself: the SDK would submit, and pay for, another job.
 */
export async function callForSdk<Answer>(
  { headers, abortSignal }: SdkCallInput,
  request: object,
  url: string,
  call: (options: CallOptions) => Promise<Answer>,
  isSubmitted?: boolean,
): Promise<Answer> {
  try {
    return await call({
      signal: abortSignal,
      headers: passableHeaders(headers),
      maxRetries: isSubmitted ? 2 : undefined,
    });
  } catch (error) {
    throw markCallError(error, request, url, isSubmitted);
  }
}

/** Reads `providerOptions.townhall`. Options under any other name are left out, with a warning. */
export function readOptions({ providerOptions = {} }: SdkCallInput): {
  options: Record<string, unknown>;
  warnings: SharedV3Warning[];
} {
  const { townhall, ...otherOptions } = providerOptions;
  const warnings = Object.keys(otherOptions)
    .filter((name) => Object.keys((otherOptions[name] ?? {}) as object).length > 0)
    .map((name): SharedV3Warning => ({
      type: 'unsupported',
      feature: `providerOptions.${name}`,
      details: 'Options are read from providerOptions.townhall.',
    }));
  return { options: (townhall ?? {}) as Record<string, unknown>, warnings };
}
