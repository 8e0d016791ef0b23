// Pictures, films, speech and recognition: the operations, and how each finds the model that runs it. A picture or a
// film is a job, since it takes longer than a caller should hold a connection for; sound is answered at once.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type {
  CreateImageRequest,
  ImageJob,
  StartVideoRequest,
  TranscribeAudioForm,
  TranscribeAudioRequest,
  VideoJob,
} from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Call, Handlers, Reply } from '../../kernel/contract/operation.ts';
import { Problem } from '../../kernel/problem.ts';
import type { UploadedFile } from '../../kernel/http/multipart.ts';
import type { Identity } from '../identity.ts';
import { ranHeaders, type Attempts, type Task } from './attempts.ts';
import { viewerOf, type Catalog, type CatalogModel, type Viewer } from './catalog/catalog.ts';
import { creditsHeader } from './formats/passthrough/calls.ts';
import {
  ownerName as jobOwnerName,
  type Job,
  type JobKind,
  type JobRequest,
  type UpstreamJob,
  type Owner,
} from './jobs/job.ts';
import type { MediaJobs, JobRun } from './jobs/jobs.ts';
import type { JobCharge } from './jobs/payments.ts';
import { requirePrice } from './metering/bound.ts';
import type { Alongside } from '../credits/index.ts';
import type { Meter, Metering } from './metering/meter.ts';
import { dearest, noTokens, priceOf, type Units } from './metering/price.ts';
import type { Modality } from './catalog/models-file.ts';
import { videoResolutions, type Rates } from './catalog/rates.ts';
import { openAiImageModel, openAiSpeechModel, openAiTranscriptionModel } from './providers/openai/media.ts';
import type { ProviderModels } from './providers/text-models.ts';
import type { LocalMediaModels } from './providers/local/media-models.ts';
import { asyncVideoModel, type VideoLimits } from './providers/async-video.ts';
import { maxAnswerBytes } from './upstream/client.ts';
import { readAll } from './upstream/response-body.ts';
import { audioSeconds, billableSeconds } from './media/audio-duration.ts';
import type { MediaLinks } from './media/links.ts';
import {
  readSize,
  type RemoteMedia,
  type ImageCall,
  type ImageModel,
  type InputFile,
  type MediaFile,
  type MediaProperties,
  type AsyncVideoModel,
  type Size,
  type SpeechFormat,
  type SpeechModel,
  type TranscriptionModel,
  type VideoCall,
  type VideoModel,
} from './hub/media-model.ts';
import { detectImage } from './media/image-type.ts';

export interface MediaNeeds {
  catalog: Catalog;
  attempts: Attempts;
  metering: Metering;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  jobs: MediaJobs;
  links: MediaLinks;
  local: LocalMediaModels;
  providers: Pick<ProviderModels, 'access'>;
  /** To the first byte of an answer, over all attempts. */
  answerMs: number;
  videoLimits: VideoLimits;
}

type MediaHandlers = Pick<
  Handlers<Operations, 'ai', Identity>,
  | 'ai.createImage'
  | 'ai.getImage'
  | 'ai.cancelImage'
  | 'ai.startVideo'
  | 'ai.getMedia'
  | 'ai.synthesizeSpeech'
  | 'ai.transcribeAudio'
>;
type Asker = Extract<Identity, { kind: 'user' | 'admin' }>;

const pollAfterMs = { image: 1_000, video: 2_000 };
const maxAudioBytes = 25 * 1024 * 1024;

export function mediaHandlers(needs: MediaNeeds): MediaHandlers {
  const { catalog, attempts, metering, clock, jobs, links, local, providers, answerMs, videoLimits } = needs;
  const access = (model: CatalogModel, firstMs: number | undefined) =>
    providers.access(model, { effort: undefined, firstMs });

  function imageModel(model: CatalogModel, firstMs?: number): ImageModel {
    if (model.providerEntry.kind === 'local') return found(local.images, model);
    return openAiImageModel(model, access(spoken(model, 'images'), firstMs));
  }
  function videoModel(model: CatalogModel, firstMs?: number): VideoModel | AsyncVideoModel {
    if (model.providerEntry.kind === 'local') return found(local.videos, model);
    return orderedModel(model, firstMs);
  }
  function orderedModel(model: CatalogModel, firstMs?: number): AsyncVideoModel {
    if (model.providerEntry.video_format === undefined) throw unspoken(model, 'videos');
    return asyncVideoModel(model, model.providerEntry.video_format, {
      ...access(model, firstMs),
      clock,
      limits: videoLimits,
    });
  }
  function speechModel(model: CatalogModel, firstMs?: number): SpeechModel {
    if (model.providerEntry.kind === 'local') return found(local.speech, model);
    return openAiSpeechModel(model, access(spoken(model, 'speech'), firstMs));
  }
  function transcriptionModel(model: CatalogModel, firstMs?: number): TranscriptionModel {
    return openAiTranscriptionModel(model, access(spoken(model, 'recognition'), firstMs));
  }

  /** What is asked for, of the model or one of its fallbacks; what they cannot do is tried on none of them. */
  function taskOf<T>(
    view: Viewer,
    modelId: string,
    modality: keyof typeof ratesOf,
    {
      signal,
      fits = () => {},
      call,
    }: {
      signal: AbortSignal;
      fits?: (model: CatalogModel) => void;
      call: (model: CatalogModel, firstMs: number) => Promise<T>;
    },
  ): Task<T> {
    const chain = catalog.chain(view, modelId, modality);
    return {
      chain,
      signal,
      deadlineMs: answerMs,
      fits(model) {
        requirePrice(model, ratesOf[modality]);
        fits(model);
      },
      effort: () => undefined,
      prepare: (model) => (firstMs) => call(model, firstMs),
    };
  }

  /** The meter of a call that is priced by what it makes. */
  function meterOf(call: Sounding, action: string, units: Units): Meter {
    const { requestId, identity, signal, log, remember } = call;
    return metering.open({ requestId, identity, action, signal, log, demand: { units }, remember });
  }

  type Asked = Pick<JobRun, 'signal' | 'costs'> & { kind: JobKind; view: Viewer; request: JobRequest };

  /** Tells what the work costs when it is measured, on the model that did it. */
  function bills({ kind, request, costs }: Asked, model: CatalogModel, startedMs: number): void {
    costs((made): JobCharge => {
      const { videoLines, ...units } = unitsMade(kind, request, made);
      const durationMs = Math.round(clock.monotonicMs() - startedMs);
      const facts = {
        action: kind === 'image' ? 'image/create' : 'video',
        model: model.id,
        provider: model.provider,
        tokens: noTokens,
        units,
        outcome: 'completed' as const,
        estimated: false,
        ttftMs: null,
        durationMs,
      };
      return { credits: priceOf(model, { tokens: noTokens, units: { ...units, videoLines } }), facts };
    });
  }

  async function picture(asked: Asked, work: JobRun): Promise<MediaFile[]> {
    const startedMs = clock.monotonicMs();
    const call = imageCall(asked.request as CreateImageRequest);
    const { answer, model } = await attempts.run(
      taskOf(asked.view, asked.request.model, 'image', {
        signal: asked.signal,
        fits: (one) => checkImage(one, call),
        call: (one, firstMs) => imageModel(one, firstMs).generate(call, work),
      }),
    );
    bills(asked, model, startedMs);
    return answer;
  }

  async function film(asked: Asked, work: JobRun): Promise<(MediaFile | RemoteMedia)[]> {
    const startedMs = clock.monotonicMs();
    const call = videoCall(asked.request as unknown as StartVideoRequest);
    if (work.order !== null) return collect(asked, work.order, work);
    const placing = new AbortController();
    const { answer, model } = await attempts.run(
      taskOf(asked.view, asked.request.model, 'video', {
        // An order on its way is not cut: nobody would know whether it was taken, and paid for.
        signal: placing.signal,
        fits: (one) => checkVideo(one, call),
        async call(one, firstMs): Promise<MediaFile[] | UpstreamJob> {
          asked.signal.throwIfAborted();
          const runs = videoModel(one, firstMs);
          return 'submit' in runs
            ? { model: one.id, id: await runs.submit(call, placing.signal) }
            : runs.generate(call, work);
        },
      }),
    );
    if ('id' in answer) {
      await work.ordered(answer);
      return collect(asked, answer, work);
    }
    bills(asked, model, startedMs);
    return answer;
  }

  /** What was ordered, by whichever process and of whichever model. */
  async function collect(asked: Asked, order: UpstreamJob, work: JobRun): Promise<RemoteMedia[]> {
    const startedMs = clock.monotonicMs();
    const model = catalog.callableModel(asked.view, order.model, 'video');
    const made = await orderedModel(model).fetchResult(order.id, work);
    bills(asked, model, startedMs);
    return [made];
  }

  jobs.useGenerator(
    async ({ kind, owner, request }, work) => {
      const asked = {
        kind,
        request,
        view: viewOfJob(owner, request),
        signal: work.signal,
        costs: work.costs,
      };
      return kind === 'image' ? picture(asked, work) : film(asked, work);
    },
    {
      estimate({ kind, owner, request }) {
        const units = unitsAsked(kind, request);
        const prices = catalog
          .chain(viewOfJob(owner, request), request.model, kind)
          .map((model) => dearest(model, { input: 0, output: 0, units }));
        return prices.reduce((most, price) => (price > most ? price : most), 0n);
      },
      cancelUpstreamJob: (order) =>
        orderedModel(catalog.callableModel({ kind: 'admin' }, order.model, 'video')).cancel(order.id),
    },
  );

  function checkImage(model: CatalogModel, call: ImageCall): void {
    requireImageInput(model, call);
    imageModel(model).check(call);
  }

  function checkVideo(model: CatalogModel, call: VideoCall): void {
    requireImageInput(model, call);
    videoModel(model).check(call);
  }

  return {
    'ai.createImage': async (call) => {
      const { identity, body } = call;
      requireFit(catalog.chain(viewerOf(identity), body.model, 'image'), (model) => {
        requirePrice(model, ratesOf.image);
        checkImage(model, imageCall(body));
        if (model.rates !== null) metering.requirePayer(identity);
      });
      return accept('image', call, body);
    },

    'ai.getImage': async ({ identity, body }) => ({
      status: 200,
      body: imageJob(await jobs.find({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) })),
    }),

    'ai.cancelImage': async ({ identity, body }) => ({
      status: 200,
      body: imageJob(await jobs.cancel({ jobId: body.job_id, kind: 'image', owner: ownerOf(identity) })),
    }),

    'ai.startVideo': async (call) => {
      const { identity, body } = call;
      if ('job_id' in body) {
        const address = { jobId: body.job_id, kind: 'video', owner: ownerOf(identity) } as const;
        return {
          status: 200,
          body: videoJob(await (body.cancel === true ? jobs.cancel(address) : jobs.find(address))),
        };
      }
      requireFit(catalog.chain(viewerOf(identity), body.model, 'video'), (model) => {
        requirePrice(model, ratesOf.video);
        checkVideo(model, videoCall(body));
        if (model.rates !== null) metering.requirePayer(identity);
      });
      return accept('video', call, body);
    },

    'ai.getMedia': async ({ path, query }) => {
      const opened = links.verify(path.media_id, query.expires, query.signature)
        ? await jobs.openMedia(path.media_id, query.expires)
        : null;
      if (opened === null)
        throw new Problem('not_found', 'media_not_found', 'There is nothing under this link, or it is over.');
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

    'ai.synthesizeSpeech': async (call) => {
      const { identity, body, signal, request } = call;
      const { model: modelId, text, voice, format, speed, language, instructions } = body;
      const units = { speechCharacter: [...text].length };
      const meter = meterOf(call, 'tts', units);
      const ran = await meter.run(
        attempts,
        taskOf(viewerOf(identity), modelId, 'tts', {
          signal,
          async call(model, firstMs) {
            const answer = await speechModel(model, firstMs).generate({
              text,
              voice,
              format,
              speed,
              language,
              instructions,
              owner: ownerName(identity),
              signal: meter.signal,
            });
            // From here on the provider speaks the whole of it, whoever listens.
            meter.uses(units);
            return answer;
          },
        }),
      );
      const { answer } = ran;
      const mediaType = soundTypes[answer.format];
      const headers = ranHeaders(ran);
      const sounds = paidSound(answer.content, meter, (thrown) => attempts.brokeOff(ran.model, thrown));
      if (!wantsJson(request.headers.accept))
        return { status: 200, content: sounds, mediaType: mediaType as 'audio/wav', headers };
      // What is read here in whole is settled with its answer, which may have to be kept.
      const sound = await readAll(answer.content, maxAnswerBytes).catch(async (thrown: unknown) => {
        await unheard(meter);
        throw thrown;
      });
      const spoken = {
        model: ran.model.id,
        media_type: mediaType,
        audio: sound.toString('base64'),
        duration_seconds: audioSeconds(sound),
      };
      const credits = await meter.settle('completed', answerForKey(call, spoken));
      return { status: 200, body: spoken, headers: { ...headers, ...creditsHeader(credits) } };
    },

    'ai.transcribeAudio': async (call) => {
      const { identity, body, signal } = call;
      const { audio, fileName } = soundOf(body);
      const heldSeconds = billableSeconds(audio.content);
      const most = heldSeconds ?? audio.content.byteLength / slowestBytesPerSecond;
      const meter = meterOf(call, 'asr', { audioSecond: most });
      const ran = await meter.run(
        attempts,
        taskOf(viewerOf(identity), body.model, 'asr', {
          signal,
          call: (model, firstMs) =>
            transcriptionModel(model, firstMs).generate({
              audio,
              fileName,
              language: body.language,
              prompt: body.prompt,
              signal: meter.signal,
            }),
        }),
      );
      const { text, segments, language, durationSeconds } = ran.answer;
      const isTold = durationSeconds !== null && durationSeconds <= most * beyondBelief + 60;
      const isAbsurd = durationSeconds !== null && !isTold;
      if (isAbsurd) {
        call.log.error(
          { alarm: 'unbelievable_usage', model: ran.model.id, durationSeconds, most },
          'a provider told a duration that cannot be; what was held is charged',
        );
        if (durationSeconds > 0) meter.reportAlarm();
      }
      const ownSeconds = isAbsurd ? most : (heldSeconds ?? audio.content.byteLength / usualBytesPerSecond);
      meter.uses(
        { audioSecond: isTold ? durationSeconds : ownSeconds },
        { estimated: !isTold && (isAbsurd || heldSeconds === null) },
      );
      const heard = {
        text,
        segments: segments.map((segment) => ({
          text: segment.text,
          start_second: segment.startSecond,
          end_second: segment.endSecond,
        })),
        language,
        duration_seconds: isTold ? durationSeconds : audioSeconds(audio.content),
      };
      const credits = await meter.settle('completed', answerForKey(call, heard));
      return { status: 200, body: heard, headers: { ...ranHeaders(ran), ...creditsHeader(credits) } };
    },
  };

  async function accept<Kind extends 'image' | 'video'>(
    kind: Kind,
    { identity, requestId, remember }: Accepting,
    request: CreateImageRequest | StartVideoRequest,
  ): Promise<Extract<Reply<Operations['ai.createImage']>, { status: 202 }>> {
    const answered = (jobId: string) => ({
      status: 202 as const,
      body: { job_id: jobId, status: 'queued' as const, poll_after_ms: pollAfterMs[kind] },
    });
    const call = {
      requestId,
      tokenId: identity.tokenId,
      bureauId: identity.kind === 'user' ? identity.bureauId : null,
    };
    // A job outlives the call, and its fallbacks must be no others than the call's.
    const allowed =
      identity.kind === 'user' && identity.models !== undefined ? { allowedModels: identity.models } : {};
    const jobId = await jobs.create(
      { kind, owner: ownerOf(identity), request: { ...request, ...allowed }, call },
      (tx, made) => remember(tx, answered(made)),
    );
    return answered(jobId);
  }

  function imageJob(job: Job): ImageJob {
    const images = job.media.map(({ mediaId, mediaType, width, height }) => ({
      media_id: mediaId,
      url: links.urlFor(mediaId, job.readAt),
      media_type: mediaType,
      width,
      height,
    }));
    return { ...standing(job), ...(job.status === 'succeeded' ? { images } : {}) };
  }

  function videoJob(job: Job): VideoJob {
    const videos = job.media.map(({ mediaId, mediaType, width, height, durationSeconds }) => ({
      media_id: mediaId,
      url: links.urlFor(mediaId, job.readAt),
      media_type: mediaType,
      width,
      height,
      duration_seconds: durationSeconds ?? 0,
    }));
    return { ...standing(job), ...(job.status === 'succeeded' ? { videos } : {}) };
  }
}

function standing({ jobId, kind, status, progress, error, model, credits, createdAt, finishedAt }: Job) {
  return {
    job_id: jobId,
    status,
    progress,
    ...(error ? { error } : {}),
    ...(finishedAt === null ? { poll_after_ms: pollAfterMs[kind] } : {}),
    metadata: {
      model,
      created_at: createdAt.toISOString(),
      finished_at: finishedAt?.toISOString() ?? null,
      credits,
    },
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

// Whether the owner may use the model was settled when the job was made.
function viewOfJob({ kind }: Owner, { allowedModels }: JobRequest): Viewer {
  return kind === 'admin' ? { kind } : { kind, models: allowedModels };
}

function ownerOf(identity: Asker): Owner {
  return identity.kind === 'user'
    ? { kind: 'user', id: identity.userId }
    : { kind: 'admin', id: identity.adminId };
}

/** One name for an owner of either kind. */
function ownerName(identity: Asker): string {
  return jobOwnerName(ownerOf(identity));
}

function found<T>(models: ReadonlyMap<string, T>, { upstream_model: name, id }: CatalogModel): T {
  const model = models.get(name);
  if (model === undefined)
    throw new Problem('impossible', 'unsupported_by_model', `The model ${id} cannot be called in this way.`, {
      param: 'model',
    });
  return model;
}

/** The model, when its provider speaks OpenAI's format for this. */
function spoken(model: CatalogModel, what: string): CatalogModel {
  if (model.providerEntry.kind === 'openai-compatible' || model.providerEntry.kind === 'openai') return model;
  throw unspoken(model, what);
}

function unspoken({ id, providerEntry: by }: CatalogModel, what: string): Problem {
  return new Problem(
    'impossible',
    'unsupported_by_model',
    `The model ${id} cannot be called: ${what} of providers of the kind ${by.kind} are not supported.`,
    { param: 'model' },
  );
}

function requireImageInput(
  { id, providerEntry: by, inputs }: CatalogModel,
  { images }: { images: readonly InputFile[] },
): void {
  // What runs in this process says itself what it takes.
  if (by.kind === 'local' || images.length === 0 || inputs === undefined || inputs.includes('image')) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `The model ${id} does not start from images; it takes ${inputs.join(', ')}.`,
    { param: 'images' },
  );
}

function imageCall({
  prompt,
  n,
  size,
  aspect_ratio: ratio,
  seed,
  images,
  provider_options: options,
}: CreateImageRequest): ImageCall {
  return { prompt, count: n ?? 1, ...visual({ size, ratio, seed, images, options }) };
}

function videoCall({
  prompt,
  duration_seconds: durationSeconds,
  fps,
  size,
  aspect_ratio: ratio,
  seed,
  images,
  provider_options: options,
}: StartVideoRequest): VideoCall {
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
    throw new Problem('bad_request', 'invalid_request', 'Give size or aspect_ratio, not both.', {
      param: 'aspect_ratio',
      details: [{ path: 'aspect_ratio', message: 'cannot stand beside size' }],
    });
  }
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
  const content = fromBase64(data, `${param}.data`);
  if (detectImage(content)?.mediaType !== mediaType) {
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The member ${param} is not what its media_type says.`,
      { param, details: [{ path: param, message: `is not ${mediaType}` }] },
    );
  }
  return { content, mediaType };
}

const soundTypes = {
  wav: 'audio/wav',
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  pcm: 'audio/pcm',
} as const satisfies Record<SpeechFormat, string>;

// Whoever asks for JSON and for no sound. Most clients ask for anything, and get the sound.
function wantsJson(accept: string | string[] | undefined): boolean {
  const asked = String(accept ?? '').toLowerCase();
  return asked.includes('application/json') && !asked.includes('audio/');
}

type Sounding = Pick<
  Call<Operations['ai.synthesizeSpeech'], Identity>,
  'requestId' | 'identity' | 'signal' | 'log' | 'remember'
>;
type Accepting = Pick<Call<Operations['ai.createImage'], Identity>, 'requestId' | 'identity' | 'remember'>;

// The sound, paid for before its end. A cut sound is worth nothing; one that nobody hears to its end was made.
async function* paidSound(
  content: AsyncIterable<Uint8Array>,
  meter: Meter,
  onThrow: (thrown: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
    await meter.settle('completed');
  } catch (thrown) {
    await unheard(meter);
    onThrow(thrown);
    throw thrown;
  } finally {
    await meter.settle('client_closed');
  }
}

async function unheard(meter: Meter): Promise<void> {
  meter.uses({ speechCharacter: 0 });
  await meter.settle('upstream_failed');
}

function answerForKey({ remember }: Sounding, body: unknown): Alongside | undefined {
  const answer = remember.inSettlement({ status: 200, body });
  return answer && { answer };
}

/** The rates that a kind of call can be priced by. */
const ratesOf = {
  image: ['image'],
  video: ['video_second', ...videoResolutions.map((lines) => `video_second_${lines}` as const)],
  tts: ['speech_character'],
  asr: ['audio_second'],
} as const satisfies Partial<Record<Modality, readonly (keyof Rates)[]>>;

// No codec in use for speech spends less; the usual ones spend far more.
const slowestBytesPerSecond = 750;
const usualBytesPerSecond = 16_000;
const beyondBelief = 8;
// What models make of themselves when no duration is asked for is shorter.
const usualVideoSeconds = 10;

function unitsAsked(kind: JobKind, request: JobRequest): Units {
  const {
    n,
    duration_seconds: seconds,
    size,
  } = request as { n?: number; duration_seconds?: number; size?: string };
  return kind === 'image'
    ? { image: n ?? 1 }
    : {
        videoSecond: seconds ?? usualVideoSeconds,
        videoLines: size === undefined ? undefined : linesOf(readSize(size)),
      };
}

/** What was made; pictures that nobody asked for are a present, and so is what a film is longer or larger than it should be. */
function unitsMade(kind: JobKind, request: JobRequest, made: readonly MediaProperties[]): Units {
  const asked = unitsAsked(kind, request);
  if (kind === 'image') return { image: Math.min(made.length, asked.image ?? 1) };
  const { duration_seconds: limit = Number.POSITIVE_INFINITY } = request as { duration_seconds?: number };
  const videoLines = Math.min(Math.max(...made.map(linesOf)), asked.videoLines ?? Number.POSITIVE_INFINITY);
  // A film that does not tell how long it is counts as long as it was asked for.
  return {
    videoLines,
    videoSecond: made.reduce(
      (sum, { durationSeconds }) => sum + Math.min(durationSeconds ?? asked.videoSecond ?? 0, limit),
      0,
    ),
  };
}

// Films are called by their shorter side, however they stand.
function linesOf({ width, height }: Size): number {
  return Math.min(width, height);
}

type Sound = TranscribeAudioRequest | (Omit<TranscribeAudioForm, 'file'> & { file: UploadedFile });

function soundOf(body: Sound): { audio: InputFile; fileName: string } {
  const isForm = 'file' in body;
  const content = isForm ? body.file.content : fromBase64(body.audio, 'audio');
  const param = isForm ? 'file' : 'audio';
  if (content.byteLength === 0)
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is empty.`, {
      param,
      details: [{ path: param, message: 'is empty' }],
    });
  if (content.byteLength > maxAudioBytes)
    throw new Problem(
      'too_large',
      'request_too_large',
      `The sound may have ${maxAudioBytes} bytes at most.`,
      { param },
    );
  const given = isForm ? body.file.mediaType : body.media_type.toLowerCase();
  const mediaType = /^(?:audio|video)\/[a-z0-9.+-]+$/.test(given) ? given : 'application/octet-stream';
  // Providers tell the container by the name's ending; what a caller calls its file is its own business.
  return {
    audio: { content, mediaType },
    fileName: `audio.${endingOf(mediaType, isForm ? body.file.fileName : '')}`,
  };
}

const endings: Record<string, string> = {
  'audio/mpeg': 'mp3',
  'audio/mp3': 'mp3',
  'audio/wav': 'wav',
  'audio/x-wav': 'wav',
  'audio/wave': 'wav',
  'audio/vnd.wave': 'wav',
  'audio/ogg': 'ogg',
  'audio/opus': 'ogg',
  'audio/flac': 'flac',
  'audio/x-flac': 'flac',
  'audio/mp4': 'm4a',
  'audio/m4a': 'm4a',
  'audio/x-m4a': 'm4a',
  'video/mp4': 'mp4',
  'audio/webm': 'webm',
  'video/webm': 'webm',
  'audio/aac': 'aac',
};

function endingOf(mediaType: string, fileName: string): string {
  return endings[mediaType] ?? /\.([A-Za-z0-9]{1,8})$/.exec(fileName)?.[1]?.toLowerCase() ?? 'bin';
}

function fromBase64(text: string, param: string): Uint8Array {
  const content = Buffer.from(text, 'base64');
  // Node skips what is not base64, so the result is then shorter than the text says. It reads base64url too. An
  // expression over 34 MB of text would hold the event loop for a third of a second.
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const digits = text.length - padding;
  const isWhole =
    content.byteLength === Math.floor((digits * 3) / 4) && digits % 4 !== 1 && text.length % 4 !== 1;
  if (!isWhole || text.includes('-') || text.includes('_')) {
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is not base64.`, {
      param,
      details: [{ path: param, message: 'is not base64' }],
    });
  }
  return new Uint8Array(content);
}
