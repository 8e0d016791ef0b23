// A whole gateway for tests of images, videos, speech and recognition: its own storage folder, a scripted
// provider in its models file, and a second user without access to the first user's data.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GatewayClient, GeneratedImage, GeneratedVideo, ImageJob, VideoJob } from '@townhall/gateway';
import { vi } from 'vitest';
import { startGateway, type GatewayWorld, type GatewayWorldOptions } from '../../../support/gateway.ts';
import { startProvider, type ProviderCall, type ScriptedProvider } from '../../../support/provider.ts';
import { id } from '../../../../src/kernel/ids.ts';
import { createToken, tokenDigest } from '../../../../src/kernel/secrets/secret.ts';
import { wavFile } from '../wav.ts';

export interface MediaWorld extends GatewayWorld {
  provider: ScriptedProvider;
  /** Another user of the same Bureau. */
  stranger(): Promise<GatewayClient>;
  /** Sends a raw body with the user's token or another token. */
  send(
    path: string,
    body: unknown,
    options?: { headers?: Record<string, string>; token?: string },
  ): Promise<Response>;
}

/** Half a second of silence as a WAV file with two bytes a sample. */
export const silence = wavFile(16_000, { samplesPerSecond: 16_000 });

const scripts = {
  painter: 'images',
  slow: 'images-slow',
  refusing: 'status?code=400&message=no%20such%20size&param=size&error_code=invalid_size',
  elsewhere: 'images-elsewhere',
  broken: 'status?code=500',
  speaker: 'speech',
  whisper: 'whisper',
  listener: 'listener',
  silent: 'never-headers',
  'film-forever': 'film-forever',
  'film-failed': 'film-failed',
};

// A model that fails and has a fallback.
const failingModel = {
  id: 'acme/with-fallback',
  provider: 'acme',
  upstream_model: 'status?code=500',
  rates: null,
  modalities: ['image'],
  fallbacks: ['acme/painter'],
};

const paidModel = {
  id: 'acme/paid',
  provider: 'acme',
  upstream_model: 'images',
  rates: { image: 40_000 },
  modalities: ['image'],
};

const paidFilm = {
  id: 'acme/film-paid',
  provider: 'acme',
  upstream_model: 'film',
  rates: { video_second: 10_000 },
  modalities: ['video'],
};

const vectors = {
  id: 'acme/vectors',
  provider: 'acme',
  upstream_model: 'ok',
  rates: { input: 1_000_000 },
  modalities: ['embedding'],
};

const paidLarge = { ...paidModel, id: 'acme/paid-large', upstream_model: 'images-large' };
const paidLater = { ...paidModel, id: 'acme/paid-later', upstream_model: 'images-slow?ms=1500' };

export async function startMedia(options: GatewayWorldOptions = {}): Promise<MediaWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-media-'));
  const provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(scripts, {
      provider: { formats: ['chat', 'embeddings', 'rerank'] },
      model: { modalities: ['image', 'tts', 'asr', 'video'] },
      models: [failingModel, paidModel, paidLarge, paidLater, paidFilm, vectors],
    }),
  );
  const world = await startGateway({
    ...options,
    env: {
      ACME_API_KEY: 'key-of-acme',
      STORAGE_PATH: join(folder, 'storage'),
      MODELS_FILE: modelsFile,
      TIMEOUT_DRAIN_MS: '1000',
      ...options.env,
    },
  });
  const members: Omit<MediaWorld, keyof GatewayWorld> & Pick<GatewayWorld, 'close'> = {
    provider,
    stranger: async () => world.as(await issueStrangerToken(world)),
    send: (path, body, { headers = {}, token: bearer = world.userToken } = {}) =>
      fetch(`${world.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${bearer}`, ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    async close() {
      await world.close();
      await provider.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
  // Extends the gateway world by its prototype: a copy would evaluate members that throw without an
  // administrator.
  return Object.assign(Object.create(world) as GatewayWorld, members);
}

/** Polls until the job has ended. */
export async function waitForEnd(
  client: GatewayClient,
  jobId: string,
  deadlineMs = 45_000,
): Promise<ImageJob> {
  return pollUntilEnd(() => client.ai.getImage({ job_id: jobId }), deadlineMs);
}

/** Polls until the video's job has ended. `ai.startVideo` with a `job_id` starts nothing and returns the job. */
export async function waitForVideo(
  client: GatewayClient,
  jobId: string,
  deadlineMs = 90_000,
): Promise<VideoJob> {
  return pollUntilEnd(async () => (await client.ai.startVideo({ job_id: jobId })) as VideoJob, deadlineMs);
}

function pollUntilEnd<Job extends { status: string }>(
  readJob: () => Promise<Job>,
  deadlineMs: number,
): Promise<Job> {
  const readEnd = async () => {
    const job = await readJob();
    return job.status === 'queued' || job.status === 'running' ? null : job;
  };
  return vi.waitUntil(readEnd, { interval: 100, timeout: deadlineMs });
}

/** The images of a job; throws for a job that has none. */
export function imagesOf(job: ImageJob): GeneratedImage[] {
  if (job.status !== 'succeeded') throw new Error(`The job is ${job.status}.`);
  return job.images;
}

/** The videos of a job; throws for a job that has none. */
export function videosOf(job: VideoJob): GeneratedVideo[] {
  if (job.status !== 'succeeded') throw new Error(`The job is ${job.status}.`);
  return job.videos;
}

/** The status and the error of an answer that is an error. */
export async function refusalOf(response: Response): Promise<[number, Record<string, unknown>]> {
  const { error } = (await response.json()) as { error: Record<string, unknown> };
  return [response.status, error];
}

/** The form that the provider received. */
export async function formOf({ body, headers }: ProviderCall): Promise<FormData> {
  const init = { headers: { 'content-type': headers['content-type'] ?? '' } };
  return new Response(new Uint8Array(body), init).formData();
}

/** Downloads a link without a credential. */
export async function download(url: string): Promise<{ status: number; headers: Headers; bytes: Buffer }> {
  const response = await fetch(url);
  return {
    status: response.status,
    headers: response.headers,
    bytes: Buffer.from(await response.arrayBuffer()),
  };
}

async function issueStrangerToken({ sql }: GatewayWorld): Promise<string> {
  const userId = 'usr_00000000000000000000000001';
  const userToken = createToken('usr');
  await sql`
    insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, 'local')
    on conflict do nothing`;
  await sql`
    insert into gateway.accounts_tokens (token_id, kind, digest, last4, user_id, expires_at)
    values (${id('tok')}, 'user', ${tokenDigest(userToken)}, ${userToken.slice(-4)}, ${userId},
      now() + interval '1 day')`;
  return userToken;
}
