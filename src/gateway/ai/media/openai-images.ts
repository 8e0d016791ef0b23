// OpenAI's images API: converts its requests to requests of our own image operation, and the images of a job
// to its answer.
import type {
  CreateImageRequest,
  OpenAiImageEditForm,
  OpenAiImageList,
  OpenAiImageRequest,
} from '../../../contract/gateway/types.gen.ts';
import type { UploadedFile } from '../../../kernel/http/body/multipart.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Job } from '../jobs/job.ts';
import { detectImage } from './image-type.ts';
import { unsupportedMember } from '../hub/problems.ts';
import { unixSeconds } from '../../../kernel/clock.ts';

export type ImageEditForm = Omit<OpenAiImageEditForm, 'image' | 'image[]' | 'mask'> & {
  image?: UploadedFile;
  'image[]'?: UploadedFile[];
  mask?: UploadedFile;
};

/**
 * Members that are sent to the provider unchanged. `auto` is the provider's
 * default and is left out.
 */
const providerMembers = [
  'quality',
  'style',
  'background',
  'moderation',
  'output_format',
  'output_compression',
  'input_fidelity',
] as const;

type ProviderMember = (typeof providerMembers)[number];
type SharedMembers = Pick<OpenAiImageRequest, 'model' | 'prompt' | 'size'> &
  Partial<Record<ProviderMember, unknown>>;

export function toImageRequest(body: OpenAiImageRequest): CreateImageRequest {
  return { ...sharedMembers(body), ...(typeof body.n === 'number' ? { n: body.n } : {}) };
}

/**
 * Throws a 400 for a file that is not an image, and a 422 for a mask, which no model here supports.
 */
export function toEditRequest(form: ImageEditForm): CreateImageRequest {
  if (form.mask !== undefined) throw unsupportedMember('mask', 'A mask is not supported; leave mask out.');
  const files = [...(form.image === undefined ? [] : [form.image]), ...(form['image[]'] ?? [])];
  if (files.length === 0)
    throw new Problem('bad_request', 'invalid_request', 'The member image is required.', { param: 'image' });
  const { output_compression: compression, ...formWithoutCompression } = form;
  return {
    ...sharedMembers({
      ...formWithoutCompression,
      ...(compression === undefined ? {} : { output_compression: Number(compression) }),
    }),
    ...(form.n === undefined ? {} : { n: Number(form.n) }),
    images: files.map(({ content }, index) =>
      toInputImage(content, files.length === 1 ? 'image' : `image[${index}]`),
    ),
  };
}

function sharedMembers(body: SharedMembers): CreateImageRequest {
  const { model, prompt, size } = body;
  const options = providerMembers.flatMap((name) => {
    const value = body[name];
    return (value ?? 'auto') === 'auto' ? [] : [[name, value] as const];
  });
  return {
    model,
    prompt,
    ...(typeof size === 'string' && size !== 'auto' ? { size } : {}),
    ...(options.length === 0 ? {} : { provider_options: Object.fromEntries(options) }),
  };
}

/** Throws a 400 for a file that is not an image; `param` is its place in the request. */
export function toInputImage(
  content: Uint8Array,
  param: string,
): NonNullable<CreateImageRequest['images']>[number] {
  const mediaType = detectImage(content)?.mediaType;
  if (mediaType !== 'image/png' && mediaType !== 'image/jpeg' && mediaType !== 'image/webp')
    throw new Problem('bad_request', 'invalid_request', `The file ${param} is not a PNG, a JPEG or a WebP.`, {
      param,
    });
  return { data: Buffer.from(content).toString('base64'), media_type: mediaType };
}

/**
 * Without `response_format` the answer has both the link and the bytes, since clients differ in which of the
 * two they read by default.
 */
export async function toImageList(
  job: Job,
  format: 'url' | 'b64_json' | null | undefined,
  { urlFor, read }: { urlFor(mediaId: string): string; read(mediaId: string): Promise<Buffer> },
): Promise<OpenAiImageList> {
  const data: OpenAiImageList['data'] = [];
  for (const { mediaId } of job.media)
    data.push({
      ...(format === 'b64_json' ? {} : { url: urlFor(mediaId) }),
      ...(format === 'url' ? {} : { b64_json: (await read(mediaId)).toString('base64') }),
    });
  return { created: unixSeconds(job.finishedAt ?? job.readAt), data };
}
