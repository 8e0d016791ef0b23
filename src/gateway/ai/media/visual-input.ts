// Converts image and video requests of the contract to calls of the hub.
import type { CreateImageRequest, StartVideoRequest } from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import { readSize, type ImageCall, type InputFile, type VideoCall } from '../hub/media-model.ts';
import { decodeBase64 } from './base64.ts';
import { detectImage } from './image-type.ts';

/** Throws a 400 for an image that is not base64 or not of its media type. */
export function imageCallOf(request: CreateImageRequest): ImageCall {
  return { prompt: request.prompt, count: request.n ?? 1, ...visualMembers(request) };
}

/** Throws like `imageCallOf`. */
export function videoCallOf(request: StartVideoRequest): VideoCall {
  return {
    prompt: request.prompt,
    durationSeconds: request.duration_seconds,
    framesPerSecond: request.fps,
    ...visualMembers(request),
  };
}

function visualMembers({
  size,
  aspect_ratio: ratio,
  seed,
  images = [],
  provider_options: options = {},
}: Pick<CreateImageRequest, 'size' | 'aspect_ratio' | 'seed' | 'images' | 'provider_options'>) {
  return {
    size: size === undefined ? undefined : readSize(size),
    aspectRatio: ratio === undefined ? undefined : readSize(ratio),
    seed,
    images: images.map(inputImage),
    options,
  };
}

function inputImage(
  { data, media_type: mediaType }: { data: string; media_type: string },
  index: number,
): InputFile {
  const param = `images[${index}]`;
  const content = decodeBase64(data, `${param}.data`);
  if (detectImage(content)?.mediaType === mediaType) return { content, mediaType };
  throw new Problem(
    'bad_request',
    'invalid_request',
    `The content of ${param} is not ${mediaType}, its media_type.`,
    {
      param,
      details: [{ path: param, message: `is not ${mediaType}` }],
    },
  );
}
