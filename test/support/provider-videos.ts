// The scripted provider's video APIs in the formats of OpenAI, Google and xAI. The model's name is
// the script: `film?polls=2&seconds=4&failing=2` (the first `failing` polls answer 503),
// `film-failed?code=…&message=…`, `film-held` (held back by content rules), `film-forever`,
// `film-vanished`, `film-cut` (the first download breaks off), `film-garbage`, `film-large?bytes=…`
// and `film-elsewhere?to=…` (the video is at another address).
import type { IncomingMessage, ServerResponse } from 'node:http';

export interface VideoScene {
  request: IncomingMessage;
  response: ServerResponse;
  /** The model's name with script and parameters; only the request that creates a job has one. */
  named: string;
  end(rest?: string | Buffer): void;
}

interface Order {
  script: string;
  knobs: URLSearchParams;
  polls: number;
  fetches: number;
}

const json = { 'content-type': 'application/json' };

/** Plays videos for one provider; false for a request of another kind. */
export function createVideos(): (scene: VideoScene) => boolean {
  const orders = new Map<string, Order>();

  function resolveUrl(reference: string): string {
    const [script = '', knobs = ''] = decodeURIComponent(reference).split(/[?~]/);
    const id = `video_${orders.size + 1}`;
    orders.set(id, { script, knobs: new URLSearchParams(knobs), polls: 0, fetches: 0 });
    return id;
  }

  return ({ request, response, named: reference, end }) => {
    const url = new URL(request.url ?? '', `http://${request.headers.host ?? 'provider'}`);
    const say = (value: object, status = 200) => {
      response.writeHead(status, json);
      end(JSON.stringify(value));
      return true;
    };
    const origin = `${url.origin}/v1`;
    if (request.method === 'POST' && reference.startsWith('film')) {
      if (url.pathname.endsWith(':predictLongRunning'))
        return say({ name: `models/veo/operations/${resolveUrl(reference)}` });
      if (url.pathname.endsWith('/videos/generations')) return say({ request_id: resolveUrl(reference) });
      if (url.pathname.endsWith('/videos'))
        return say({ id: resolveUrl(reference), object: 'video', status: 'queued', progress: 0 });
    }
    const [, kind = '', id = '', rest = ''] =
      /^\/v1\/(videos|models\/veo\/operations|files)\/(video_\d+)(.*)$/.exec(url.pathname) ?? [];
    const order = orders.get(id);
    if (order === undefined)
      return kind === '' ? false : say({ error: { message: `There is no ${id}.`, code: 'not_found' } }, 404);
    if (request.method === 'DELETE') return say({ id, object: 'video.deleted', deleted: true });
    if (kind === 'files' || rest === '/content') {
      order.fetches += 1;
      return fetchResult(order, { response, end });
    }
    order.polls += 1;
    if (order.script === 'film-vanished')
      return say({ error: { message: `There is no ${id}.`, code: 'not_found' } }, 404);
    if (order.polls <= Number(order.knobs.get('failing') ?? 0))
      return say({ error: { message: 'Busy.', code: 'server_error' } }, 503);
    const polls = Number(order.knobs.get('polls') ?? 1);
    const isWaiting = order.script === 'film-forever' || order.polls <= polls;
    const finalState = order.script === 'film-failed' || order.script === 'film-held' ? 'failed' : 'ready';
    const state = isWaiting ? 'waiting' : finalState;
    const progress = Math.min(Math.round((order.polls * 100) / (polls + 1)), 99);
    const error = {
      code: order.knobs.get('code') ?? 'moderation_blocked',
      message: order.knobs.get('message') ?? 'The prompt is not allowed.',
    };
    const place = order.knobs.get('to') ?? `${origin}/files/${id}:download?alt=media`;
    if (kind.startsWith('models')) return say(operation(order, { state, id, error, place }));
    // xAI and OpenAI use the same path; the job's script says which of them it is.
    if (order.knobs.has('xai')) {
      if (state === 'waiting') return say({ status: 'pending', progress }, 202);
      if (order.script === 'film-held')
        return say({ status: 'done', video: { url: place, respect_moderation: false } });
      return say(
        state === 'failed'
          ? { status: 'failed', error }
          : { status: 'done', video: { url: place, duration: 4, respect_moderation: true } },
      );
    }
    if (state === 'waiting') return say({ id, object: 'video', status: 'in_progress', progress });
    if (state === 'failed') return say({ id, object: 'video', status: 'failed', error });
    return say({ id, object: 'video', status: 'completed', progress: 100, seconds: '4', error: null });
  };
}

function operation(
  { script }: Order,
  { state, id, error, place }: { state: string; id: string; error: { message: string }; place: string },
): object {
  const name = `models/veo/operations/${id}`;
  if (state === 'waiting') return { name };
  if (script === 'film-held')
    return {
      name,
      done: true,
      response: {
        generateVideoResponse: { raiMediaFilteredCount: 1, raiMediaFilteredReasons: [error.message] },
      },
    };
  if (state === 'failed')
    return { name, done: true, error: { code: 3, status: 'INVALID_ARGUMENT', message: error.message } };
  return {
    name,
    done: true,
    response: { generateVideoResponse: { generatedSamples: [{ video: { uri: place } }] } },
  };
}

function fetchResult(
  { script, knobs, fetches }: Order,
  { response, end }: Pick<VideoScene, 'response' | 'end'>,
): true {
  const redirectUrl = knobs.get('to');
  if (script === 'film-elsewhere' && redirectUrl !== null) {
    response.writeHead(302, { location: redirectUrl });
    end();
    return true;
  }
  const seconds = Number(knobs.get('seconds') ?? 4);
  const film = scriptedFilm({ seconds, bytes: Number(knobs.get('bytes') ?? 2_000) });
  response.writeHead(200, {
    'content-type': 'video/mp4',
    ...(script === 'film-cut' && fetches === 1 ? { 'content-length': String(film.length) } : {}),
  });
  if (script === 'film-garbage') end('{"error":"there was no film"}');
  else if (script === 'film-cut' && fetches === 1)
    response.write(film.subarray(0, film.length / 2), () => response.destroy());
  else end(film);
  return true;
}

/**
 * The boxes of an MP4 of 1280 by 720 with the index behind its samples, which contain no picture.
 */
export function scriptedFilm({ seconds = 4, bytes = 2_000, width = 1280, height = 720 } = {}): Buffer {
  const box = (name: string, ...content: Buffer[]): Buffer => {
    const file = Buffer.concat([Buffer.alloc(8), ...content]);
    file.writeUInt32BE(file.length, 0);
    file.write(name, 4, 'latin1');
    return file;
  };
  const movieHeader = Buffer.alloc(100);
  movieHeader.writeUInt32BE(1_000, 12);
  movieHeader.writeUInt32BE(Math.round(seconds * 1_000), 16);
  const trackHeader = (size: { width: number; height: number }) => {
    const header = Buffer.alloc(84);
    header.writeUInt16BE(size.width, 76);
    header.writeUInt16BE(size.height, 80);
    return box('trak', box('tkhd', header));
  };
  return Buffer.concat([
    box('ftyp', Buffer.from('isom\0\0\0\0isom', 'latin1')),
    box('mdat', Buffer.alloc(bytes, 7)),
    box(
      'moov',
      box('mvhd', movieHeader),
      trackHeader({ width: 0, height: 0 }),
      trackHeader({ width, height }),
    ),
  ]);
}
