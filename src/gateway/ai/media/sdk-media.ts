// The AI SDK's media calls: converts its requests to requests of our own operations, and warns about options
// that are not sent to the model.
import type {
  CreateImageRequest,
  SdkImageFile,
  SdkImageRequest,
  SdkSpeechRequest,
  SdkTranscription,
  SynthesizeSpeechRequest,
  Transcription,
} from '../../../contract/gateway/types.gen.ts';
import type { Warning } from '../hub/language-model.ts';
import { decodeBase64 } from './base64.ts';
import { toInputImage } from './openai-images.ts';
import { unsupportedMember } from '../hub/problems.ts';

export type SdkOptions = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/**
 * Selects the options of the model's provider, and warns about the options of every other provider.
 * `provider` is undefined for a model that takes no options.
 */
export function optionsFor(
  provider: string | undefined,
  options: SdkOptions = {},
): { optionsForProvider: Readonly<Record<string, unknown>>; warnings: Warning[] } {
  const warnings = Object.entries(options)
    .filter(([name, members]) => name !== provider && Object.keys(members).length > 0)
    .map(([name]) => ({
      type: 'unsupported' as const,
      feature: `providerOptions.${name}`,
      details:
        provider === undefined
          ? 'options are not sent to this model'
          : `only options of ${provider} are sent to this model`,
    }));
  const optionsForProvider =
    provider !== undefined && Object.hasOwn(options, provider) ? options[provider] : undefined;
  return { optionsForProvider: optionsForProvider ?? {}, warnings };
}

/** Throws a 400 for a file that is not an image, and a 422 for a mask or for a file given by its URL. */
export function toImageRequest(
  { prompt, n, size, aspectRatio, seed, files = [], mask }: SdkImageRequest,
  { model, options }: { model: string; options: Readonly<Record<string, unknown>> },
): CreateImageRequest {
  if (mask !== undefined) throw unsupportedMember('mask', 'A mask is not supported; leave mask out.');
  return {
    model,
    prompt,
    ...(n === undefined ? {} : { n }),
    ...(size === undefined ? {} : { size }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: aspectRatio }),
    ...(seed === undefined ? {} : { seed }),
    ...(files.length === 0
      ? {}
      : { images: files.map((file, index) => sdkInputImage(file, `files[${index}]`)) }),
    ...(Object.keys(options).length === 0 ? {} : { provider_options: { ...options } }),
  };
}

/**
 * Throws a 422 for a file given by its URL, and a 400 for a file that is not an image; `param` is its member
 * in the request.
 */
export function sdkInputImage({ data }: SdkImageFile, param: string): ReturnType<typeof toInputImage> {
  if (data === undefined)
    throw unsupportedMember(param, 'The gateway does not download images; send the bytes of the image.');
  return toInputImage(decodeBase64(data, `${param}.data`), param);
}

export function toSpeechRequest(
  { text, voice, outputFormat, instructions, speed, language }: SdkSpeechRequest,
  model: string,
): SynthesizeSpeechRequest {
  return {
    model,
    text,
    ...(voice === undefined ? {} : { voice }),
    ...(outputFormat === undefined ? {} : { format: outputFormat }),
    ...(instructions === undefined ? {} : { instructions }),
    ...(speed === undefined ? {} : { speed }),
    ...(language === undefined ? {} : { language }),
  };
}

export function toSdkTranscription(
  { text, segments, language, duration_seconds: seconds }: Transcription,
  warnings: Warning[],
): SdkTranscription {
  return {
    text,
    segments: segments.map(({ text: words, start_second: startSecond, end_second: endSecond }) => ({
      text: words,
      startSecond,
      endSecond,
    })),
    language,
    durationInSeconds: seconds,
    warnings,
  };
}
