// The scripted provider's video APIs in the formats of OpenAI, Google and xAI. The model's name is
// the script: `film?polls=2&seconds=4&failing=2` (the first `failing` polls answer 503),
// `film-failed?code=…&message=…`, `film-held` (held back by content rules), `film-forever`,
// `film-vanished`, `film-cut` (the first download is cut off), `film-garbage`, `film-large?bytes=…`
// and `film-elsewhere?to=…` (the video is at another address).
import type { IncomingMessage, ServerResponse } from 'node:http';

export interface VideoScene {
  request: IncomingMessage;
  response: ServerResponse;
  /** Name of the model with script and parameters; only the request that creates a job has one. */
  model: string;
  end(rest?: string | Buffer): void;
}

interface VideoJob {
  script: string;
  parameters: URLSearchParams;
  polls: number;
  fetches: number;
}

const json = { 'content-type': 'application/json' };

/** Plays videos for one provider; false for a request of another kind. */
export function createVideos(): (scene: VideoScene) => boolean {
  const jobs = new Map<string, VideoJob>();

  function createJob(model: string): string {
    const [script = '', parameters = ''] = decodeURIComponent(model).split(/[?~]/);
    const id = `video_${jobs.size + 1}`;
    jobs.set(id, { script, parameters: new URLSearchParams(parameters), polls: 0, fetches: 0 });
    return id;
  }

  return ({ request, response, model, end }) => {
    const url = new URL(request.url ?? '', `http://${request.headers.host ?? 'provider'}`);
    const answer = (value: object, status = 200) => {
      response.writeHead(status, json);
      end(JSON.stringify(value));
      return true;
    };
    if (request.method === 'POST' && model.startsWith('film')) {
      if (url.pathname.endsWith(':predictLongRunning'))
        return answer({ name: `models/veo/operations/${createJob(model)}` });
      if (url.pathname.endsWith('/videos/generations')) return answer({ request_id: createJob(model) });
      if (url.pathname.endsWith('/videos'))
        return answer({ id: createJob(model), object: 'video', status: 'queued', progress: 0 });
    }
    const [, kind = '', id = '', rest = ''] =
      /^\/v1\/(videos|models\/veo\/operations|files)\/(video_\d+)(.*)$/.exec(url.pathname) ?? [];
    const job = jobs.get(id);
    if (job === undefined)
      return kind === ''
        ? false
        : answer({ error: { message: `There is no ${id}.`, code: 'not_found' } }, 404);
    if (request.method === 'DELETE') return answer({ id, object: 'video.deleted', deleted: true });
    if (kind === 'files' || rest === '/content') {
      job.fetches += 1;
      return sendVideo(job, { response, end });
    }
    job.polls += 1;
    if (job.script === 'film-vanished')
      return answer({ error: { message: `There is no ${id}.`, code: 'not_found' } }, 404);
    if (job.polls <= Number(job.parameters.get('failing') ?? 0))
      return answer({ error: { message: 'Busy.', code: 'server_error' } }, 503);
    const status = statusOf(job, id, `${url.origin}/v1`);
    if (kind.startsWith('models')) return answer(googleOperation(status));
    // xAI and OpenAI use the same path; the parameters of the job say which of them it is.
    if (!job.parameters.has('xai')) return answer(openaiVideo(status));
    return answer(xaiVideo(status), status.state === 'waiting' ? 202 : 200);
  };
}

interface JobStatus {
  id: string;
  state: 'waiting' | 'failed' | 'withheld' | 'ready';
  progress: number;
  error: { code: string; message: string };
  downloadUrl: string;
}

function statusOf({ script, parameters, polls }: VideoJob, id: string, baseUrl: string): JobStatus {
  const waitingPolls = Number(parameters.get('polls') ?? 1);
  const finalStates: Record<string, JobStatus['state']> = {
    'film-failed': 'failed',
    'film-held': 'withheld',
  };
  const isWaiting = script === 'film-forever' || polls <= waitingPolls;
  return {
    id,
    state: isWaiting ? 'waiting' : (finalStates[script] ?? 'ready'),
    progress: Math.min(Math.round((polls * 100) / (waitingPolls + 1)), 99),
    error: {
      code: parameters.get('code') ?? 'moderation_blocked',
      message: parameters.get('message') ?? 'The prompt is not allowed.',
    },
    downloadUrl: parameters.get('to') ?? `${baseUrl}/files/${id}:download?alt=media`,
  };
}

function openaiVideo({ id, state, progress, error }: JobStatus): object {
  const video = { id, object: 'video' };
  if (state === 'waiting') return { ...video, status: 'in_progress', progress };
  if (state !== 'ready') return { ...video, status: 'failed', error };
  return { ...video, status: 'completed', progress: 100, seconds: '4', error: null };
}

function xaiVideo({ state, progress, error, downloadUrl }: JobStatus): object {
  if (state === 'waiting') return { status: 'pending', progress };
  if (state === 'failed') return { status: 'failed', error };
  if (state === 'withheld') return { status: 'done', video: { url: downloadUrl, respect_moderation: false } };
  return { status: 'done', video: { url: downloadUrl, duration: 4, respect_moderation: true } };
}

function googleOperation({ id, state, error, downloadUrl }: JobStatus): object {
  const name = `models/veo/operations/${id}`;
  if (state === 'waiting') return { name };
  if (state === 'failed')
    return { name, done: true, error: { code: 3, status: 'INVALID_ARGUMENT', message: error.message } };
  const generateVideoResponse =
    state === 'withheld'
      ? { raiMediaFilteredCount: 1, raiMediaFilteredReasons: [error.message] }
      : { generatedSamples: [{ video: { uri: downloadUrl } }] };
  return { name, done: true, response: { generateVideoResponse } };
}

function sendVideo(
  { script, parameters, fetches }: VideoJob,
  { response, end }: Pick<VideoScene, 'response' | 'end'>,
): true {
  const redirectUrl = parameters.get('to');
  if (script === 'film-elsewhere' && redirectUrl !== null) {
    response.writeHead(302, { location: redirectUrl });
    end();
    return true;
  }
  const seconds = Number(parameters.get('seconds') ?? 4);
  const film = scriptedFilm({ seconds, bytes: Number(parameters.get('bytes') ?? 2_000) });
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
 * The boxes of an MP4 of 1280 by 720 with the index after its samples, which contain no picture.
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
