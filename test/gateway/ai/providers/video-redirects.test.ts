// The download of a video that redirects to another host: which requests carry the provider's key.
import { expect, test } from 'vitest';
import { asyncVideoModel } from '../../../../src/gateway/ai/providers/async-video.ts';
import type { Upstream, UpstreamRequest } from '../../../../src/gateway/ai/upstream/client.ts';
import type { RemoteMedia } from '../../../../src/gateway/ai/hub/media-model.ts';
import { scriptedFilm } from '../../../support/provider-videos.ts';
import { catalogModel } from '../catalog-model.ts';

type RecordedRequest = Pick<UpstreamRequest, 'url' | 'apiKey' | 'requiresPublicAddress'>;

const fileUrl = 'https://provider.example/v1/videos/video_1/content';
const redirects: Record<string, string | undefined> = {
  [fileUrl]: 'https://store.example/film.mp4?signature=1',
  'https://store.example/film.mp4?signature=1': 'https://provider.example/again',
  'https://provider.example/again': 'https://far.example/film',
};

/** Answers polls with a finished job and downloads with a film, after the redirects. */
function createUpstream(
  requests: RecordedRequest[],
  redirectOf = (url: string): string | undefined => redirects[url],
): Upstream {
  const job = JSON.stringify({ id: 'video_1', status: 'completed', seconds: '2' });
  return {
    async send({ url, apiKey, requiresPublicAddress, allowRedirect }) {
      requests.push({ url, apiKey, requiresPublicAddress });
      const redirectUrl = redirectOf(url);
      async function* body(): AsyncGenerator<Uint8Array> {
        yield allowRedirect === true ? scriptedFilm({ seconds: 2 }) : Buffer.from(job);
      }
      return {
        mediaType: '',
        body: body(),
        abort: () => {},
        redact: (text: string) => text,
        ...(redirectUrl === undefined ? {} : { redirectUrl }),
      };
    },
    toProblem: () => {
      throw new Error('The provider refuses nothing here.');
    },
    close: async () => {},
  };
}

async function fetchFilm(upstream: Upstream): Promise<RemoteMedia> {
  const model = asyncVideoModel(catalogModel({ id: 'acme/film' }), 'openai', {
    upstream,
    baseUrl: 'https://provider.example/v1',
    apiKey: 'the key',
    idleMs: undefined,
    sdkModels: new WeakMap(),
    clock: { sleep: async () => {} },
    limits: { pollMs: 1, maxBytes: 1_000_000 },
  });
  return model.fetchResult('video_1', {
    owner: 'user usr_1',
    signal: new AbortController().signal,
    reportProgress: () => {},
  });
}

test('sends the key only to the origin of the provider', async () => {
  const requests: RecordedRequest[] = [];
  const film = await fetchFilm(createUpstream(requests));
  for await (const _piece of film.open());
  expect(film.properties()).toMatchObject({ durationSeconds: 2, width: 1280, height: 720 });
  expect(requests.slice(1)).toEqual([
    { url: fileUrl, apiKey: 'the key', requiresPublicAddress: false },
    { url: 'https://store.example/film.mp4?signature=1', apiKey: undefined, requiresPublicAddress: true },
    { url: 'https://provider.example/again', apiKey: 'the key', requiresPublicAddress: false },
    { url: 'https://far.example/film', apiKey: undefined, requiresPublicAddress: true },
  ]);
});

test('follows five redirects and refuses a sixth', async () => {
  /** Redirects `count` times, to `/1`, `/2` and so on. */
  const redirectTimes = (count: number) => (url: string) => {
    const step = url === fileUrl ? 0 : Number(new URL(url).pathname.slice(1));
    return step < count ? `https://store.example/${step + 1}` : undefined;
  };
  const film = await fetchFilm(createUpstream([], redirectTimes(5)));
  for await (const _piece of film.open());
  expect(film.properties()).toMatchObject({ durationSeconds: 2 });

  const farFilm = await fetchFilm(createUpstream([], redirectTimes(6)));
  const readAll = async () => {
    for await (const _piece of farFilm.open());
  };
  await expect(readAll()).rejects.toMatchObject({ message: expect.stringContaining('more than 5 times') });
});
