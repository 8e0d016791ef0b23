// Generates the media of jobs: calls the requested model or a fallback, submits videos to providers
// with asynchronous jobs, and prices the result.
import type { CreateImageRequest, StartVideoRequest } from '../../../contract/gateway/types.gen.ts';
import { maxBigInt } from '../../../kernel/bigint.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { callModel } from './call.ts';
import type { Catalog, CatalogModel, Viewer } from '../catalog/catalog.ts';
import type { MediaFile } from '../hub/media-model.ts';
import type { JobKind, UpstreamJob } from '../jobs/job.ts';
import type { JobCharge } from '../jobs/payments.ts';
import type { GeneratedMedia, JobInput, JobRun, MediaGenerator } from '../jobs/run.ts';
import { mediaRequest } from './media-request.ts';
import { generatedUnits, requestedUnits } from '../media/units.ts';
import { imageCallOf, videoCallOf } from '../media/visual-input.ts';
import { maximumPrice, noTokens, priceOf } from '../metering/price.ts';
import type { ModelRouter } from './model-router.ts';
import type { MediaModels } from '../providers/media-models.ts';
import type { Backends } from '../upstream/backends.ts';
import type { Timeouts } from '../upstream/deadlines.ts';
import type { ModelHealth } from '../upstream/model-health.ts';

export interface MediaGenerationOptions {
  catalog: Catalog;
  health: ModelHealth;
  router?: ModelRouter;
  models: MediaModels;
  backends: Pick<Backends, 'find'>;
  clock: Pick<Clock, 'monotonicMs'>;
  timeouts: Pick<Timeouts, 'answerMs'>;
}

export function mediaGenerator(options: MediaGenerationOptions): MediaGenerator {
  const { catalog, models, backends } = options;
  return {
    generate: (job, run) =>
      job.kind === 'image' ? generateImages(options, job, run) : generateVideo(options, job, run),
    estimate({ kind, owner, request }) {
      const units = requestedUnits(kind, request);
      const prices = catalog
        .chain(viewerOfJob({ owner, request }), request.model, kind)
        .map((model) => maximumPrice(model, { input: 0, output: 0, units }));
      return prices.reduce(maxBigInt, 0n);
    },
    chargeForUpstreamJob: (job, upstreamJob) => chargeForUpstreamJob(options, job, upstreamJob),
    cancelUpstreamJob({ model: modelId, id, backend }) {
      const model = catalog.callableModel({ kind: 'admin' }, modelId, 'video');
      return models.asyncVideo(model, { backend: backends.find(model.providerEntry, backend) }).cancel(id);
    },
  };
}

async function generateImages(
  options: MediaGenerationOptions,
  job: JobInput,
  run: JobRun,
): Promise<GeneratedMedia> {
  const { catalog, models, clock, timeouts } = options;
  const startedMs = clock.monotonicMs();
  const call = imageCallOf(job.request as CreateImageRequest);
  const { answer, model } = await callModel(
    mediaRequest(catalog, {
      viewer: viewerOfJob(job),
      modelId: job.request.model,
      modality: 'image',
      signal: run.signal,
      deadlineMs: timeouts.answerMs,
      check: (candidate) => models.checkImage(candidate, call),
      send: (attempt) => models.image(attempt.model, attempt).generate(call, run),
    }),
    options,
  );
  return withCharge(options, job, { files: answer, model, startedMs });
}

/** The immediate result of a video model: files, or an accepted job whose result is fetched later. */
type VideoStart = { kind: 'generated'; files: MediaFile[] } | { kind: 'submitted'; upstreamJob: UpstreamJob };

async function generateVideo(
  options: MediaGenerationOptions,
  job: JobInput,
  run: JobRun,
): Promise<GeneratedMedia> {
  if (run.upstreamJob !== null) return fetchVideo(options, job, { upstreamJob: run.upstreamJob, run });
  const startedMs = options.clock.monotonicMs();
  const { answer: start, model } = await startVideo(options, job, run);
  if (start.kind === 'generated') return withCharge(options, job, { files: start.files, model, startedMs });
  await run.saveUpstreamJob(start.upstreamJob);
  return fetchVideo(options, job, { upstreamJob: start.upstreamJob, run });
}

function startVideo(
  options: MediaGenerationOptions,
  job: JobInput,
  run: JobRun,
): Promise<{ answer: VideoStart; model: CatalogModel }> {
  const { catalog, models, timeouts } = options;
  const call = videoCallOf(job.request as unknown as StartVideoRequest);
  // A running submission is never aborted: it would be unknown whether the provider has accepted
  // the job and charges for it.
  const { signal: neverAborted } = new AbortController();
  return callModel(
    mediaRequest<VideoStart>(catalog, {
      viewer: viewerOfJob(job),
      modelId: job.request.model,
      modality: 'video',
      signal: neverAborted,
      deadlineMs: timeouts.answerMs,
      check: (candidate) => models.checkVideo(candidate, call),
      async send(attempt) {
        run.signal.throwIfAborted();
        const { model, backend } = attempt;
        const videoModel = models.video(model, attempt);
        if (!('submit' in videoModel))
          return { kind: 'generated', files: await videoModel.generate(call, run) };
        const id = await videoModel.submit(call, neverAborted);
        return { kind: 'submitted', upstreamJob: { model: model.id, id, backend: backend.id } };
      },
    }),
    options,
  );
}

/**
 * Waits for the result of a submitted job. It may have been submitted by another process, or to a fallback
 * of the requested model.
 */
async function fetchVideo(
  options: MediaGenerationOptions,
  job: JobInput,
  { upstreamJob, run }: { upstreamJob: UpstreamJob; run: JobRun },
): Promise<GeneratedMedia> {
  const { catalog, models, backends, clock } = options;
  const startedMs = clock.monotonicMs();
  const model = catalog.callableModel(viewerOfJob(job), upstreamJob.model, 'video');
  const file = await models
    .asyncVideo(model, { backend: backends.find(model.providerEntry, upstreamJob.backend) })
    .fetchResult(upstreamJob.id, run);
  return withCharge(options, job, { files: [file], model, startedMs });
}

const actions: Readonly<Record<JobKind, string>> = { image: 'image/create', video: 'video' };

/** The files with their price, by the rates of the model that generated them. */
function withCharge(
  { clock }: Pick<MediaGenerationOptions, 'clock'>,
  { kind, request }: JobInput,
  { files, model, startedMs }: { files: GeneratedMedia['files']; model: CatalogModel; startedMs: number },
): GeneratedMedia {
  return {
    files,
    chargeFor: (properties) =>
      chargeOf(model, generatedUnits(kind, request, properties), {
        action: actions[kind],
        outcome: 'completed',
        estimated: false,
        durationMs: Math.round(clock.monotonicMs() - startedMs),
      }),
  };
}

/**
 * The charge for a submitted job whose result is unknown; null when the catalog no longer has its model.
 */
function chargeForUpstreamJob(
  { catalog }: Pick<MediaGenerationOptions, 'catalog'>,
  { kind, request }: JobInput,
  upstreamJob: UpstreamJob,
): JobCharge | null {
  const model = catalog.all().find(({ id }) => id === upstreamJob.model);
  if (model === undefined) return null;
  return chargeOf(model, requestedUnits(kind, request), {
    action: actions[kind],
    outcome: 'client_closed',
    estimated: true,
    durationMs: 0,
  });
}

function chargeOf(
  model: CatalogModel,
  { videoLines, ...units }: ReturnType<typeof generatedUnits>,
  facts: Pick<JobCharge['facts'], 'action' | 'outcome' | 'estimated' | 'durationMs'>,
): JobCharge {
  return {
    credits: priceOf(model, { tokens: noTokens, units: { ...units, videoLines } }),
    facts: {
      model: model.id,
      provider: model.provider,
      tokens: noTokens,
      // The resolution only selects the rate; the usage record does not contain it.
      units,
      ttftMs: null,
      ...facts,
    },
  };
}

/**
 * The owner's rights were checked when the job was created. The models that the owner's API key allows
 * still limit the fallbacks.
 */
function viewerOfJob({ owner, request }: Pick<JobInput, 'owner' | 'request'>): Viewer {
  return owner.kind === 'admin' ? { kind: 'admin' } : { kind: 'user', models: request.allowedModels };
}
