// An image model of the gateway as the AI SDK's `ImageModelV3`: it starts the job, polls it and
// downloads the images, and cancels a job that it no longer waits for.

import { sleep } from '../../shared/src/sleep.ts';
import { GatewayError } from './errors.ts';
import type {
  AcceptedJob,
  CanceledImageJob,
  CreateImageRequest,
  FailedImageJob,
  SucceededImageJob,
} from './generated/types.gen.ts';
import { callForSdk, type MediaRoute, readOptions } from './media-call.ts';
import { toBase64 } from './model-call.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { ImageModelV3, ImageModelV3CallOptions } from '@ai-sdk/provider';

const maxImages = 10;

export function createImageModel(modelId: string, route: MediaRoute): ImageModelV3 {
  const url = urlOf(route);
  return {
    specificationVersion: 'v3',
    provider: 'townhall',
    modelId,
    maxImagesPerCall: maxImages,

    async doGenerate(options) {
      const { options: providerOptions, warnings } = readOptions(options);
      const request = writeRequest(modelId, options, providerOptions);
      const submission = await callForSdk(options, request, url, (call) => route.createImage(request, call));
      const job = await waitForImages(submission, options, route);
      if (job.status !== 'succeeded') throw jobFailure(job);
      const images = await Promise.all(
        job.images.map((image) =>
          callForSdk(options, request, url, (call) => bytesOf(image.url, route, call), true),
        ),
      );
      return {
        images,
        warnings,
        response: {
          timestamp: new Date(job.metadata.created_at),
          modelId: job.metadata.model,
          headers: undefined,
        },
      };
    },
  };
}

function urlOf({ baseUrl }: MediaRoute): string {
  return `${baseUrl}/v1/ai/image/create`;
}

const maxFirstPollMs = 500;
const cancelTimeoutMs = 10_000;

async function waitForImages(
  { job_id: jobId, poll_after_ms: pollAfterMs }: AcceptedJob,
  options: ImageModelV3CallOptions,
  route: MediaRoute,
): Promise<SucceededImageJob | FailedImageJob | CanceledImageJob> {
  try {
    for (let waitMs = Math.min(pollAfterMs, maxFirstPollMs); ;) {
      await sleep(waitMs, options.abortSignal);
      const job = await callForSdk(
        options,
        {},
        urlOf(route),
        (call) => route.getImage({ job_id: jobId }, call),
        true,
      );
      if (job.status !== 'queued' && job.status !== 'running') return job;
      waitMs = job.poll_after_ms;
    }
  } catch (error) {
    // Cancel the job: its images would be charged although the caller no longer waits for them. If this
    // fails, the job ends at its deadline. An abort must not wait for the server, so this runs in the background.
    route.cancelImage({ job_id: jobId }, { timeoutMs: cancelTimeoutMs }).catch(() => undefined);
    throw error;
  }
}

function writeRequest(
  modelId: string,
  options: ImageModelV3CallOptions,
  providerOptions: Record<string, unknown>,
): CreateImageRequest {
  // Without the mask the result would be another image than requested, so a warning is not enough.
  if (options.mask !== undefined) throw new TypeError('The gateway does not support masks for images.');
  const { prompt, n, size, aspectRatio, seed, files } = options;
  return {
    model: modelId,
    prompt: prompt ?? '',
    ...(n === 1 ? {} : { n }),
    ...(size === undefined ? {} : { size }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: aspectRatio }),
    ...(seed === undefined ? {} : { seed }),
    ...(files === undefined || files.length === 0 ? {} : { images: files.map(writeFile) }),
    ...(Object.keys(providerOptions).length === 0 ? {} : { provider_options: providerOptions }),
  };
}

function writeFile(
  file: NonNullable<ImageModelV3CallOptions['files']>[number],
): NonNullable<CreateImageRequest['images']>[number] {
  if (file.type !== 'file')
    throw new TypeError('The gateway does not download images; pass the bytes instead of an address.');
  const data = typeof file.data === 'string' ? file.data : toBase64(file.data);
  return { data, media_type: file.mediaType as 'image/png' };
}

// Downloads an image from the client's base URL, which may differ from the server's own address.
async function bytesOf(
  link: string,
  route: MediaRoute,
  call: Parameters<MediaRoute['getMedia']>[1],
): Promise<Uint8Array> {
  const { pathname, searchParams } = new URL(link);
  const blob = await route.getMedia(
    {
      media_id: pathname.split('/').at(-1) ?? '',
      expires: Number(searchParams.get('expires')),
      signature: searchParams.get('signature') ?? '',
    },
    call,
  );
  return new Uint8Array(await blob.arrayBuffer());
}

function jobFailure(job: FailedImageJob | CanceledImageJob): GatewayError {
  if (job.status === 'canceled')
    return new GatewayError({ status: 200, code: 'job_canceled', message: 'The job was canceled.' });
  const { code, message } = job.error;
  return new GatewayError({ status: 200, type: 'upstream_error', code, message });
}
