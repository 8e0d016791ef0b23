// The service `ai`: the model catalog and the operations that call a model. This file composes it. The
// handlers are in one file per family of formats, and each call runs through calls/call.ts.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Ledger } from '../credits/index.ts';
import type { Service } from '../service.ts';
import type { AiContext, AiHandlers } from './calls/context.ts';
import { audioHandlers } from './handlers/audio.ts';
import { createBilling } from './billing/billing.ts';
import type { AlarmStore } from './billing/alarm-store.ts';
import type { UsageAlarmCounts } from './billing/usage-alarms.ts';
import { checkModelsFiles, openCatalog } from './catalog/catalog.ts';
import { curatedModels } from './catalog/curated.ts';
import type { ModelsFile } from './catalog/models-file.ts';
import { remoteProviders } from './catalog/provider-views.ts';
import { chatHandlers } from './handlers/chat.ts';
import { completionHandlers } from './handlers/completions.ts';
import { createPassthrough } from './formats/passthrough/calls.ts';
import type { MediaJobs } from './jobs/jobs.ts';
import type { MediaLinks } from './media/links.ts';
import { geminiHandlers } from './handlers/gemini.ts';
import { mediaGenerator } from './calls/media-generation.ts';
import { mediaHandlers } from './handlers/media.ts';
import { messageHandlers } from './handlers/messages.ts';
import { modelHandlers } from './handlers/models.ts';
import { createModelRouter } from './calls/model-router.ts';
import { openAiAudioHandlers } from './handlers/openai-audio.ts';
import { openAiImageHandlers } from './handlers/openai-images.ts';
import { openAiVideoHandlers } from './handlers/openai-videos.ts';
import { passthroughHandlers } from './handlers/passthrough.ts';
import { checkProviders, type ProviderCheck } from './provider-check.ts';
import { defaultVideoLimits, type VideoLimits } from './providers/async-video.ts';
import { localProvider, type LocalProvider, noLocalModels } from './providers/local/local.ts';
import { createMediaModels, type MediaModels } from './providers/media-models.ts';
import { createProviderModels } from './providers/text-models.ts';
import { type BackgroundResponses, createBackgroundResponses } from './responses/background.ts';
import { responseHandlers } from './responses/handlers.ts';
import { createResponseRuns, type ResponseRuns } from './responses/runs/runs.ts';
import { sdkEmbeddingHandlers } from './handlers/sdk-embeddings.ts';
import { sdkMediaHandlers } from './handlers/sdk-media.ts';
import { sdkVideoHandlers } from './handlers/sdk-videos.ts';
import type { StoredResponses } from './responses/stored/stored-responses.ts';
import { streamHandlers } from './handlers/stream.ts';
import { textHandlers } from './handlers/text.ts';
import { uiHandlers } from './handlers/ui.ts';
import type { Proxies } from './upstream/agent.ts';
import { type BackendReport, createBackends } from './upstream/backends.ts';
import { createUpstream, type Upstream } from './upstream/client.ts';
import { defaultTimeouts, type Timeouts } from './upstream/deadlines.ts';
import {
  type BreakerChannel,
  createModelHealth,
  type ModelHealthOptions,
  type WatchAttempt,
} from './upstream/model-health.ts';

/** Settings and dependencies of the service. */
export interface AiOptions {
  /** Provider keys, read again for each call. */
  env: { get(key: string): string | undefined };
  /** The file that `townhall models update` writes; it need not exist, but its folder must. */
  catalogFile?: string | undefined;
  /** The operator's providers and models; read at start and on change. */
  modelsFile?: string | undefined;
  /** The built-in models; the models of catalog.json by default. */
  curated?: ModelsFile;
  /** The folder of Markdown that `local/guide` answers from. */
  guideDirectory: string;
  /** False removes the models of this process from the catalog. */
  localModels?: boolean;
  clock: Clock;
  log: Log;
  timeouts?: Partial<Timeouts>;
  /** Retries and circuit breakers. */
  resilience?: Pick<ModelHealthOptions, 'retry' | 'breaker' | 'random'>;
  /** Shares the circuit breakers with other processes of this machine. */
  breakerChannel?: BreakerChannel | undefined;
  proxies?: Proxies;
  videoLimits?: Partial<VideoLimits>;
  /** Interval of comments on a silent stream. */
  heartbeatMs?: number;
  /** Removes live secrets from a provider's error messages. */
  hide?: (text: string) => string;
  /** Wraps each call of a model for tracing and metrics. */
  watch?: WatchAttempt;
  /** Runs work that may outlive its request, for tracing and metrics. */
  runDetached?: (work: () => Promise<void>) => Promise<void>;
  /** Calls with an impossible usage that stop a user's paid calls for an hour; 3 by default. */
  alarmsToStop?: number | undefined;
  /**
   * Stores the alarms across restarts and shares them with other replicas; without it they are
   * counted only in this process.
   */
  alarms?: AlarmStore;
  /** W3C `traceparent` header of the current call. */
  traceparent?: () => string | undefined;
  /** Id of the current request, for the log. */
  requestId?: () => string | undefined;
  /** Reserves and charges the credits of a call. */
  ledger: Ledger;
  /** Jobs for images and videos. The owner starts and closes them. */
  jobs: MediaJobs;
  links: MediaLinks;
  /** The owner starts and closes them. */
  storedResponses: StoredResponses;
  /** How long a stream with an Idempotency-Key runs on without a reader; 60 seconds by default. */
  rejoinMs?: number;
}

/** The service, and operations for the operator that are not in the contract. */
export interface AiService extends Service<'ai'> {
  /** Calls each configured provider once and reports the result. */
  checkProviders(): Promise<ProviderCheck[]>;
  /** Ends the calls that run on without their client. */
  stopRuns(): Promise<void>;
  /** Resolves when all calls that have been made are charged. */
  settled(): Promise<void>;
  /** Counts calls with an impossible usage, and users whose paid calls are stopped for it. */
  usageAlarms(): UsageAlarmCounts;
  /** Reads the stored alarms again, which other replicas add and administrators delete. Never throws. */
  refreshAlarms(): Promise<void>;
  /** State of the circuit breaker of each model. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
  /** State of the keys of each provider with several keys or endpoints. */
  sharedKeys(): BackendReport[];
}

/**
 * Validates the catalog file and the models file as `ai` does, and opens nothing. Throws a
 * SettingError for an invalid file.
 */
export async function requireModelsFiles({
  clock,
  guideDirectory,
  catalogFile,
  modelsFile,
}: Pick<AiOptions, 'clock' | 'guideDirectory' | 'catalogFile' | 'modelsFile'>): Promise<void> {
  const { entries } = localProvider({ clock, guideDirectory });
  await checkModelsFiles({ builtin: entries, curated: curatedModels(), catalogFile, modelsFile });
}

/** Opens the service. Throws a ModelsFileError for an invalid models file. */
export async function ai(options: AiOptions): Promise<AiService> {
  const { log, storedResponses } = options;
  const timeouts = { ...defaultTimeouts, ...options.timeouts };
  const upstream = openUpstream(options, timeouts);
  const local = localModels(options);
  const context = await openContext(options, { timeouts, upstream, local });
  const { catalog, billing, health, backends } = context;
  const models = createMediaModels({
    local: local.media,
    providers: context.providers,
    clock: options.clock,
    videoLimits: { ...defaultVideoLimits, ...options.videoLimits },
  });
  options.jobs.useGenerator(mediaGenerator({ ...context, models }));
  const runs = createResponseRuns({ log, runDetached: options.runDetached });
  const background = createBackgroundResponses({ runs, storedResponses, log });
  return {
    name: 'ai',
    title: 'Models',
    get env() {
      return catalog.requirements();
    },
    breakers: () => health.breakers(),
    sharedKeys: () =>
      remoteProviders(catalog.all())
        .map((entry) => backends.poolOf(entry))
        .flatMap((pool) => (pool.isShared ? pool.reports() : [])),
    usageAlarms: () => billing.alarms.counts(),
    refreshAlarms: () => billing.alarms.refresh(),
    checkProviders: () => checkProviders({ ...context, env: options.env, models: () => catalog.all() }),
    stopRuns: () => background.close(),
    settled: () => billing.untilSettled(),
    async close() {
      catalog.close();
      await background.close();
      await billing.close();
      await upstream.close();
    },
    handlers: createHandlers(options, { context, models, runs, background }),
  };
}

interface HandlerParts {
  context: AiContext;
  models: MediaModels;
  runs: ResponseRuns;
  background: BackgroundResponses;
}

function createHandlers(
  { storedResponses, jobs, links, rejoinMs = 60_000 }: AiOptions,
  { context, models, runs, background }: HandlerParts,
): AiHandlers {
  const audio = { ...context, models };
  const media = { ...context, models, jobs, links };
  return {
    ...modelHandlers(context),
    ...textHandlers(context),
    ...streamHandlers(context),
    ...uiHandlers(context),
    ...chatHandlers(context),
    ...completionHandlers(context),
    ...passthroughHandlers(context),
    ...messageHandlers(context),
    ...responseHandlers({ ...context, storedResponses, runs, background, rejoinMs }),
    ...geminiHandlers(context),
    ...sdkEmbeddingHandlers(context),
    ...audioHandlers(audio),
    ...openAiAudioHandlers(audio),
    ...mediaHandlers(media),
    ...openAiImageHandlers(media),
    ...openAiVideoHandlers(media),
    ...sdkMediaHandlers(media),
    ...sdkVideoHandlers(media),
  };
}

function openUpstream(
  { proxies = {}, clock, log, hide = (text) => text, traceparent, requestId }: AiOptions,
  timeouts: Timeouts,
): Upstream {
  return createUpstream({ timeouts, proxies, clock, log, hide, traceparent, requestId });
}

function localModels({ localModels: isEnabled = true, clock, guideDirectory }: AiOptions): LocalProvider {
  return isEnabled ? localProvider({ clock, guideDirectory }) : noLocalModels;
}

async function openContext(
  options: AiOptions,
  { timeouts, upstream, local }: { timeouts: Timeouts; upstream: Upstream; local: LocalProvider },
): Promise<AiContext> {
  const { env, clock, log, heartbeatMs = 15_000, ledger, alarmsToStop, alarms } = options;
  const catalog = await openCatalog({
    env,
    builtin: local.entries,
    curated: options.curated ?? curatedModels(),
    catalogFile: options.catalogFile,
    modelsFile: options.modelsFile,
    log,
  });
  const backends = createBackends({ env, clock });
  const providers = createProviderModels({ env, backends, upstream, timeouts, local: local.models, clock });
  return {
    catalog,
    billing: createBilling({ ledger, clock, alarmsToStop, alarmStore: alarms, log }),
    backends,
    router: createModelRouter({ clock }),
    health: createModelHealth({
      clock,
      backends,
      watch: options.watch,
      breakerChannel: options.breakerChannel,
      ...options.resilience,
    }),
    providers,
    passthrough: createPassthrough({ providers, clock, heartbeatMs }),
    clock,
    timeouts,
  };
}
