// Pictures, films, speech and recognition: the operations, and how each finds the model that runs it. A picture or a
// film is a job, since it takes longer than a caller should hold a connection for; sound is answered at once.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { CreateImageRequest, ImageJob, StartVideoRequest, TranscribeAudioForm, TranscribeAudioRequest, VideoJob } from '../../../contract/gateway/types.gen.ts';
import type { Handlers, Reply } from '../../../kernel/operation.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { UploadedFile } from '../../../kernel/multipart.ts';
import type { Identity } from '../../identity.ts';
import { ranHeaders, type Attempts } from '../attempts.ts';
import { viewOf, type Catalog, type CatalogModel, type View } from '../catalog.ts';
import type { Job, Owner } from '../jobs/job.ts';
import type { MediaJobs } from '../jobs/jobs.ts';
import type { Modality } from '../models-file.ts';
import { openAiImageModel, openAiSpeechModel, openAiTranscriptionModel } from '../providers/openai-media.ts';
import type { ProviderModels } from '../provider-models.ts';
import type { LocalMedia } from '../providers/local-media.ts';
import { maxAnswerBytes, readAll } from '../upstream/client.ts';
import { audioSeconds } from './duration.ts';
import type { Links } from './links.ts';
import { readSize, type ImageCall, type ImageModel, type InputFile, type SpeechFormat, type SpeechModel, type TranscriptionModel, type VideoCall, type VideoModel, type VisualModel } from './model.ts';
import { examinePicture } from './picture.ts';

export interface MediaNeeds {
  catalog: Catalog;
  attempts: Attempts;
  jobs: MediaJobs;
  links: Links;
  local: LocalMedia;
  providers: Pick<ProviderModels, 'access'>;
  /** To the first byte of an answer, over all attempts. */
  answerMs: number;
}

type MediaHandlers = Pick<
  Handlers<Operations, 'ai', Identity>,
  'ai.createImage' | 'ai.getImage' | 'ai.cancelImage' | 'ai.startVideo' | 'ai.getMedia' | 'ai.synthesizeSpeech' | 'ai.transcribeAudio'
>;
type Asker = Extract<Identity, { kind: 'user' | 'admin' }>;

const pollAfterMs = { image: 1_000, video: 2_000 };
const maxAudioBytes = 25 * 1024 * 1024;

export function mediaHandlers(needs: MediaNeeds): MediaHandlers {
  const { catalog, attempts, jobs, links, local, providers, answerMs } = needs;
  const access = (model: CatalogModel, firstMs: number | undefined) => providers.access(model, { effort: undefined, firstMs });

  function imageModel(model: CatalogModel, firstMs?: number): ImageModel {
    if (model.by.kind === 'local') return found(local.images, model);
    return openAiImageModel(model, access(spoken(model, 'images'), firstMs));
  }
  function videoModel(model: CatalogModel): VideoModel {
    if (model.by.kind === 'local') return found(local.videos, model);
    throw unspoken(model, 'videos');
  }
  function speechModel(model: CatalogModel, firstMs?: number): SpeechModel {
    if (model.by.kind === 'local') return found(local.speech, model);
    return openAiSpeechModel(model, access(spoken(model, 'speech'), firstMs));
  }
  function transcriptionModel(model: CatalogModel, firstMs?: number): TranscriptionModel {
    return openAiTranscriptionModel(model, access(spoken(model, 'recognition'), firstMs));
  }

  /** Runs what is asked for on the model or one of its fallbacks; what they cannot do is tried on none of them. */
  function run<T>(view: View, modelId: string, modality: Modality, { signal, fits = () => {}, call }: { signal: AbortSignal; fits?: (model: CatalogModel) => void; call: (model: CatalogModel, firstMs: number) => Promise<T> }) {
    const chain = catalog.chain(view, modelId, modality);
    return attempts.run({ chain, signal, deadlineMs: answerMs, fits, effort: () => undefined, prepare: (model) => (firstMs) => call(model, firstMs) });
  }

  jobs.madeBy(async ({ kind, owner, request }, progress) => {
    // Whether the owner may use the model was settled when the job was made.
    const view = viewOf({ kind: owner.kind });
    async function generate<Call>(modality: Modality, call: Call, modelOf: (model: CatalogModel, firstMs?: number) => VisualModel<Call>) {
      const { answer } = await run(view, request.model, modality, {
        signal: progress.signal,
        fits: (model) => modelOf(model).check(call),
        call: (model, firstMs) => modelOf(model, firstMs).generate(call, progress),
      });
      return answer;
    }
    if (kind === 'image') return generate('image', imageCall(request as CreateImageRequest), imageModel);
    return generate('video', videoCall(request as unknown as StartVideoRequest), videoModel);
  });

  return {
    'ai.createImage': async ({ identity, body, remember }) => {
      requireFit(catalog.chain(viewOf(identity), body.model, 'image'), (model) => imageModel(model).check(imageCall(body)));
      return accept('image', identity, body, remember);
    },

    'ai.getImage': async ({ identity, body }) => ({ status: 200, body: imageJob(await jobs.find({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) })) }),

    'ai.cancelImage': async ({ identity, body }) => ({ status: 200, body: imageJob(await jobs.cancel({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) })) }),

    'ai.startVideo': async ({ identity, body, remember }) => {
      if ('job_id' in body) {
        const address = { jobId: body.job_id, kind: 'video', owner: ownerOf(identity) } as const;
        return { status: 200, body: videoJob(await (body.cancel === true ? jobs.cancel(address) : jobs.find(address))) };
      }
      requireFit(catalog.chain(viewOf(identity), body.model, 'video'), (model) => videoModel(model).check(videoCall(body)));
      return accept('video', identity, body, remember);
    },

    'ai.getMedia': async ({ path, query }) => {
      const opened = links.isOurs(path.media_id, query.expires, query.signature) ? await jobs.open(path.media_id, query.expires) : null;
      if (opened === null) throw new Problem('not_found', 'media_not_found', 'There is nothing under this link, or it is over.');
      return {
        status: 200,
        content: opened.content,
        mediaType: opened.record.mediaType as 'image/png',
        headers: {
          'content-length': String(opened.size),
          // What is under a link never changes; who holds the link may keep what it gave.
          'cache-control': 'private, max-age=3600, immutable',
          // Whatever a browser finds in it, it runs nothing.
          'content-security-policy': "default-src 'none'; sandbox",
        },
      };
    },

    'ai.synthesizeSpeech': async ({ identity, body, signal, request }) => {
      const { model: modelId, text, voice, format, speed, language, instructions } = body;
      const ran = await run(viewOf(identity), modelId, 'tts', {
        signal,
        call: (model, firstMs) => speechModel(model, firstMs).generate({ text, voice, format, speed, language, instructions, signal }),
      });
      const { answer } = ran;
      const mediaType = soundTypes[answer.format];
      const headers = ranHeaders(ran);
      if (!wantsJson(request.headers.accept)) return { status: 200, content: watched(answer.content, (thrown) => attempts.brokeOff(ran.model, thrown)), mediaType: mediaType as 'audio/wav', headers };
      const sound = await readAll(answer.content, maxAnswerBytes);
      return { status: 200, body: { model: ran.model.id, media_type: mediaType, audio: sound.toString('base64'), duration_seconds: audioSeconds(sound) }, headers };
    },

    'ai.transcribeAudio': async ({ identity, body, signal }) => {
      const { audio, fileName } = soundOf(body);
      const ran = await run(viewOf(identity), body.model, 'asr', {
        signal,
        call: (model, firstMs) => transcriptionModel(model, firstMs).generate({ audio, fileName, language: body.language, prompt: body.prompt, signal }),
      });
      const { text, segments, language, durationSeconds } = ran.answer;
      return {
        status: 200,
        body: { text, segments: segments.map((segment) => ({ text: segment.text, start_second: segment.startSecond, end_second: segment.endSecond })), language, duration_seconds: durationSeconds },
        headers: ranHeaders(ran),
      };
    },
  };

  async function accept<Kind extends 'image' | 'video'>(
    kind: Kind,
    identity: Asker,
    request: CreateImageRequest | StartVideoRequest,
    remember: Parameters<MediaHandlers['ai.createImage']>[0]['remember'],
  ): Promise<Extract<Reply<Operations['ai.createImage']>, { status: 202 }>> {
    const answered = (jobId: string) => ({ status: 202 as const, body: { job_id: jobId, status: 'queued' as const, poll_after_ms: pollAfterMs[kind] } });
    const jobId = await jobs.create({ kind, owner: ownerOf(identity), request: { ...request } }, (tx, made) => remember(tx, answered(made)));
    return answered(jobId);
  }

  function imageJob(job: Job): ImageJob {
    const images = job.media.map(({ mediaId, mediaType, width, height }) => ({ media_id: mediaId, url: links.urlOf(mediaId, job.readAt), media_type: mediaType, width, height }));
    return { ...standing(job), ...(job.status === 'succeeded' ? { images } : {}) };
  }

  function videoJob(job: Job): VideoJob {
    const videos = job.media.map(({ mediaId, mediaType, width, height, durationSeconds }) => ({
      media_id: mediaId, url: links.urlOf(mediaId, job.readAt), media_type: mediaType, width, height, duration_seconds: durationSeconds ?? 0,
    }));
    return { ...standing(job), ...(job.status === 'succeeded' ? { videos } : {}) };
  }
}

function standing({ jobId, kind, status, progress, error, model, createdAt, finishedAt }: Job) {
  return {
    job_id: jobId,
    status,
    progress,
    ...(error ? { error } : {}),
    ...(finishedAt === null ? { poll_after_ms: pollAfterMs[kind] } : {}),
    metadata: { model, created_at: createdAt.toISOString(), finished_at: finishedAt?.toISOString() ?? null },
  };
}

/** Throws what speaks against the first model, when no model of the chain can do what is asked. */
function requireFit(chain: readonly CatalogModel[], check: (model: CatalogModel) => void): void {
  let first: unknown;
  for (const model of chain) {
    try {
      return check(model);
    } catch (thrown) {
      first ??= thrown;
      if (!(thrown instanceof Problem) || thrown.code !== 'unsupported_by_model') throw thrown;
    }
  }
  throw first;
}

function ownerOf(identity: Asker): Owner {
  return identity.kind === 'user' ? { kind: 'user', id: identity.userId } : { kind: 'admin', id: identity.adminId };
}

function found<T>(models: ReadonlyMap<string, T>, { upstream_model: name, id }: CatalogModel): T {
  const model = models.get(name);
  if (model === undefined) throw new Problem('impossible', 'unsupported_by_model', `The model ${id} cannot be called in this way.`, { param: 'model' });
  return model;
}

/** The model, when its provider speaks OpenAI's format for this. */
function spoken(model: CatalogModel, what: string): CatalogModel {
  if (model.by.kind === 'openai-compatible' || model.by.kind === 'openai') return model;
  throw unspoken(model, what);
}

function unspoken({ id, by }: CatalogModel, what: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', `The model ${id} cannot be called: ${what} of providers of the kind ${by.kind} are not supported.`, { param: 'model' });
}

function imageCall({ prompt, n, size, aspect_ratio: ratio, seed, images, provider_options: options }: CreateImageRequest): ImageCall {
  return { prompt, count: n ?? 1, ...visual({ size, ratio, seed, images, options }) };
}

function videoCall({ prompt, duration_seconds: durationSeconds, fps, size, aspect_ratio: ratio, seed, images, provider_options: options }: StartVideoRequest): VideoCall {
  return { prompt, durationSeconds, framesPerSecond: fps, ...visual({ size, ratio, seed, images, options }) };
}

interface Visual {
  size: string | undefined;
  ratio: string | undefined;
  seed: number | undefined;
  images: CreateImageRequest['images'];
  options: Record<string, unknown> | undefined;
}

function visual({ size, ratio, seed, images = [], options = {} }: Visual) {
  if (size !== undefined && ratio !== undefined) {
    throw new Problem('bad_request', 'invalid_request', 'Give size or aspect_ratio, not both.', { param: 'aspect_ratio', details: [{ path: 'aspect_ratio', message: 'cannot stand beside size' }] });
  }
  return { size: size === undefined ? undefined : readSize(size), aspectRatio: ratio === undefined ? undefined : readSize(ratio), seed, images: images.map(inputImage), options };
}

function inputImage({ data, media_type: mediaType }: { data: string; media_type: string }, index: number): InputFile {
  const param = `images[${index}]`;
  const content = fromBase64(data, `${param}.data`);
  if (examinePicture(content)?.mediaType !== mediaType) {
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is not what its media_type says.`, { param, details: [{ path: param, message: `is not ${mediaType}` }] });
  }
  return { content, mediaType };
}

const soundTypes = { wav: 'audio/wav', mp3: 'audio/mpeg', opus: 'audio/ogg', aac: 'audio/aac', flac: 'audio/flac', pcm: 'audio/pcm' } as const satisfies Record<SpeechFormat, string>;

// Whoever asks for JSON and for no sound. Most clients ask for anything, and get the sound.
function wantsJson(accept: string | string[] | undefined): boolean {
  const asked = String(accept ?? '').toLowerCase();
  return asked.includes('application/json') && !asked.includes('audio/');
}

async function* watched(content: AsyncIterable<Uint8Array>, onThrow: (thrown: unknown) => void): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
  } catch (thrown) {
    onThrow(thrown);
    throw thrown;
  }
}

type Sound = TranscribeAudioRequest | (Omit<TranscribeAudioForm, 'file'> & { file: UploadedFile });

function soundOf(body: Sound): { audio: InputFile; fileName: string } {
  const isForm = 'file' in body;
  const content = isForm ? body.file.content : fromBase64(body.audio, 'audio');
  const param = isForm ? 'file' : 'audio';
  if (content.byteLength === 0) throw new Problem('bad_request', 'invalid_request', `The member ${param} is empty.`, { param, details: [{ path: param, message: 'is empty' }] });
  if (content.byteLength > maxAudioBytes) throw new Problem('too_large', 'request_too_large', `The sound may have ${maxAudioBytes} bytes at most.`, { param });
  const given = isForm ? body.file.mediaType : body.media_type.toLowerCase();
  const mediaType = /^(?:audio|video)\/[a-z0-9.+-]+$/.test(given) ? given : 'application/octet-stream';
  // Providers tell the container by the name's ending; what a caller calls its file is its own business.
  return { audio: { content, mediaType }, fileName: `audio.${endingOf(mediaType, isForm ? body.file.fileName : '')}` };
}

const endings: Record<string, string> = {
  'audio/mpeg': 'mp3', 'audio/mp3': 'mp3', 'audio/wav': 'wav', 'audio/x-wav': 'wav', 'audio/wave': 'wav', 'audio/vnd.wave': 'wav', 'audio/ogg': 'ogg', 'audio/opus': 'ogg', 'audio/flac': 'flac',
  'audio/x-flac': 'flac', 'audio/mp4': 'm4a', 'audio/m4a': 'm4a', 'audio/x-m4a': 'm4a', 'video/mp4': 'mp4', 'audio/webm': 'webm', 'video/webm': 'webm', 'audio/aac': 'aac',
};

function endingOf(mediaType: string, fileName: string): string {
  return endings[mediaType] ?? /\.([A-Za-z0-9]{1,8})$/.exec(fileName)?.[1]?.toLowerCase() ?? 'bin';
}

function fromBase64(text: string, param: string): Uint8Array {
  // Node reads past whatever is no base64; what a caller did not mean to send should not be sent on.
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 === 1) {
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is not base64.`, { param, details: [{ path: param, message: 'is not base64' }] });
  }
  return new Uint8Array(Buffer.from(text, 'base64'));
}
