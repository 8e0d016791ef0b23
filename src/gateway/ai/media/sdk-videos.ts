// The AI SDK's video calls: converts its requests to requests of our own video operation, and warns about
// hints that are not sent to the model.
import type { SdkVideoRequest, StartVideoRequest } from '../../../contract/gateway/types.gen.ts';
import type { Warning } from '../hub/language-model.ts';
import { sdkInputImage } from './sdk-media.ts';
import { unsupportedMember } from '../hub/problems.ts';

type ProviderOptions = Readonly<Record<string, unknown>>;

/** Throws a 400 for a file that is not an image, and a 422 for a member that no model supports. */
export function toVideoRequest(
  body: SdkVideoRequest,
  { model, options }: { model: string; options: ProviderOptions },
): StartVideoRequest {
  refuseUnsupported(body);
  const { prompt, resolution, aspectRatio, duration, fps, seed } = body;
  const start = startImageOf(body);
  return {
    model,
    prompt,
    ...(resolution === undefined ? {} : { size: resolution }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: aspectRatio }),
    ...(duration === undefined ? {} : { duration_seconds: duration }),
    ...(fps === undefined ? {} : { fps }),
    ...(seed === undefined ? {} : { seed }),
    ...(start === undefined ? {} : { images: [sdkInputImage(start.file, start.param)] }),
    ...(Object.keys(options).length === 0 ? {} : { provider_options: { ...options } }),
  };
}

function refuseUnsupported({
  n,
  frameImages = [],
  inputReferences = [],
  callbackUrl,
}: SdkVideoRequest): void {
  if (n !== undefined && n > 1)
    throw unsupportedMember('n', 'A call generates one video; send n: 1, or set maxVideosPerCall: 1.');
  const lastFrame = frameImages.findIndex(({ frameType }) => frameType !== 'first_frame');
  if (lastFrame !== -1)
    throw unsupportedMember(`frameImages[${lastFrame}]`, 'A last frame is not supported; leave it out.');
  if (inputReferences.length > 0)
    throw unsupportedMember('inputReferences', 'Reference files are not supported; leave them out.');
  if (callbackUrl !== undefined)
    throw unsupportedMember(
      'callbackUrl',
      'The gateway calls no callback URL; poll the status of the video.',
    );
}

/** The image from which the video starts, and its member; undefined for a video from the prompt alone. */
function startImageOf({ image, frameImages = [] }: SdkVideoRequest) {
  const [frame, secondFrame] = frameImages;
  if (secondFrame !== undefined || (image !== undefined && frame !== undefined))
    throw unsupportedMember('frameImages', 'A video starts from one image; send image or one first frame.');
  if (image !== undefined) return { file: image, param: 'image' };
  return frame === undefined ? undefined : { file: frame.image, param: 'frameImages[0].image' };
}

/** Warnings for hints that change no price and that no provider's format has. */
export function hintWarnings({ generateAudio }: SdkVideoRequest): Warning[] {
  if (generateAudio === undefined) return [];
  return [
    {
      type: 'unsupported',
      feature: 'generateAudio',
      details: 'the model decides whether its videos have sound',
    },
  ];
}

const sdkNames: Readonly<Record<string, string>> = {
  size: 'resolution',
  aspect_ratio: 'aspectRatio',
  duration_seconds: 'duration',
};
const optionsPath = 'provider_options.';

/** Maps a member of `StartVideoRequest` to its name in the AI SDK's request, for errors and warnings. */
export function videoMemberNames(
  { image }: SdkVideoRequest,
  provider: string,
): (member: string) => string | undefined {
  const imageName = image === undefined ? 'frameImages' : 'image';
  return (member) => {
    if (member.startsWith(optionsPath))
      return `providerOptions.${provider}.${member.slice(optionsPath.length)}`;
    if (member.startsWith('images')) return imageName;
    return Object.hasOwn(sdkNames, member) ? sdkNames[member] : undefined;
  };
}
