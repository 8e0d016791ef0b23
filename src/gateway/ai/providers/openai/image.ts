// Images of any server with OpenAI's images API. Requests are sent unchanged, so
// that a provider rejects unsupported members itself.
import { asRecord } from '../../../../kernel/json-value.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ImageCall, ImageModel, MediaFile } from '../../hub/media-model.ts';
import { detectImage } from '../../media/image-type.ts';
import { findForm } from '../../upstream/member-names.ts';
import { refuseUnsafeMembers } from '../../upstream/request-guard.ts';
import { refusePricedOptions } from '../adapter/priced-options.ts';
import type { ModelAccess } from '../adapter/model-access.ts';
import { multipartForm, type FormField } from './multipart-form.ts';
import { readJsonAnswer, sendMediaRequest } from './request.ts';
import { upstreamFailed } from '../../hub/problems.ts';

export function openAiImageModel(model: CatalogModel, access: ModelAccess): ImageModel {
  return {
    check({ options }) {
      refuseUnsafeMembers(options, model.providerEntry, { path: 'provider_options' });
      refusePricedOptions(model, options);
      const name = findForm(Object.keys(options), callMembers);
      if (name === undefined) return;
      const param = `provider_options.${name}`;
      throw new Problem(
        'bad_request',
        'invalid_request',
        `The member ${param} is refused; use the request's own member for it instead.`,
        { param },
      );
    },
    async generate(call, { signal }) {
      const request = call.images.length === 0 ? buildGeneration(call, model) : buildEdit(call, model);
      return imagesOf(await readJsonAnswer(await sendMediaRequest(access, { ...request, signal })));
    },
  };
}

/** Members that the call determines and options may not replace. */
const callMembers = [
  'model',
  'prompt',
  'n',
  'size',
  'aspect_ratio',
  'seed',
  'image',
  'images',
  'image[]',
  'response_format',
  'stream',
  'partial_images',
];

function buildGeneration(call: ImageCall, model: CatalogModel) {
  return { path: '/images/generations', body: JSON.stringify(imageMembers(call, model)) };
}

function buildEdit(call: ImageCall, model: CatalogModel) {
  const fields = Object.entries(imageMembers(call, model)).map(([name, member]): [string, FormField] => [
    name,
    typeof member === 'string' ? member : JSON.stringify(member),
  ]);
  const files = call.images.map(({ content, mediaType }, index): [string, FormField] => [
    'image[]',
    { fileName: `image-${index + 1}.${mediaType.split('/')[1]}`, mediaType, content },
  ]);
  return { path: '/images/edits', ...multipartForm([...fields, ...files]) };
}

function imageMembers(
  { prompt, count, size, aspectRatio, seed, options }: ImageCall,
  { upstream_model: name }: CatalogModel,
): Record<string, unknown> {
  return {
    ...options,
    model: name,
    prompt,
    n: count,
    ...(size === undefined ? {} : { size: `${size.width}x${size.height}` }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: `${aspectRatio.width}:${aspectRatio.height}` }),
    ...(seed === undefined ? {} : { seed }),
    // These models always return the bytes, and refuse `response_format`.
    ...(/^(?:chatgpt|gpt)-image/.test(name) ? {} : { response_format: 'b64_json' }),
  };
}

function imagesOf(answer: unknown): MediaFile[] {
  const { data } = asRecord(answer);
  const images = (Array.isArray(data) ? data : []).map((item) => imageOf(asRecord(item)['b64_json']));
  if (images.length === 0) throw upstreamFailed('The model provider answered without an image.');
  return images;
}

/** Images must be base64: a URL from a provider could point the server to any address (SSRF). */
function imageOf(base64: unknown): MediaFile {
  if (typeof base64 !== 'string')
    throw upstreamFailed('The model provider answered with the URL of an image; only base64 is accepted.');
  const content = new Uint8Array(Buffer.from(base64, 'base64'));
  const image = detectImage(content);
  if (image === null)
    throw upstreamFailed('The model provider answered with something that is not an image.');
  return { ...image, content, durationSeconds: null };
}
