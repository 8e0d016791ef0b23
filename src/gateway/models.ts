// Constructs the model calls, and the jobs that create images and videos.
import { join } from 'node:path';
import { assetPath } from '../kernel/assets.ts';
import { s3Settings } from '../kernel/storage/s3-settings.ts';
import { s3Storage } from '../kernel/storage/s3-storage.ts';
import { directoryStorage } from '../kernel/storage/storage.ts';
import {
  ai,
  createLinks,
  jobPayments,
  jobsStore,
  mediaJobs,
  storedResponses,
  storedResponsesStore,
} from './ai/index.ts';
import { catalogFile } from './config.ts';
import type { Assembly } from './assembly.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Tenants } from './tenants.ts';

export async function openModels(
  assembly: Assembly,
  infrastructure: Infrastructure,
  tenants: Pick<Tenants, 'ledger' | 'alarms'>,
) {
  const { config, options, vault, lifecycle, database, isLocalEdition, closers, defer } = assembly;
  const { upstream, changes, cityBaseUrl } = infrastructure;
  const { log, clock } = options;
  const jobs = openMediaJobs(assembly, infrastructure, tenants);
  const links = createLinks({
    keys: vault.derive('media links'),
    baseUrl: () => (cityBaseUrl() ?? lifecycle.url ?? '').replace(/\/+$/, ''),
    linkSeconds: config.mediaLinkSeconds,
  });
  const responses = defer(
    storedResponses({
      store: storedResponsesStore(database),
      vault,
      clock,
      log,
      keepHours: config.responsesKeepHours,
      maxBytesPerOwner: config.responsesQuotaMb * 1024 * 1024,
      isAlone: isLocalEdition,
    }),
  );
  const aiService = await openAi(assembly, infrastructure, { ...tenants, jobs, links, responses });
  upstream.showBreakers(() => aiService.breakers());
  upstream.showKeys(() => aiService.sharedKeys());
  upstream.showUsageAlarms(() => aiService.usageAlarms());
  await aiService.refreshAlarms();
  changes.onChange(() => void aiService.refreshAlarms());
  // Closers run in reverse order. Jobs stop first, because they make calls. Aborted calls are still charged,
  // so wait for them while the ledger is open.
  closers.defer(() => aiService.settled());
  closers.defer(() => aiService.stopRuns());
  closers.defer(() => jobs.close());
  return { ai: aiService, jobs, responses };
}

function openMediaJobs(
  { config, options, database, isLocalEdition }: Assembly,
  { queue }: Infrastructure,
  { ledger }: Pick<Tenants, 'ledger'>,
) {
  const { log, clock, redactor } = options;
  const bucket = s3Settings('', config);
  if (bucket !== undefined) redactor.hold(bucket.secret);
  return mediaJobs({
    store: jobsStore(database),
    queue,
    storage:
      bucket === undefined
        ? directoryStorage(
            config.storagePath ?? (isLocalEdition ? join(config.databasePath, 'media') : './data/media'),
          )
        : s3Storage({ ...bucket, clock }),
    payments: jobPayments({ ledger }),
    isAlone: isLocalEdition,
    clock,
    log,
    settings: { videoDeadlineMs: config.videoMs, maxMediaBytesPerOwner: config.mediaQuotaMb * 1024 * 1024 },
  });
}

async function openAi(
  { config, options, defer }: Assembly,
  { telemetry, upstream, env }: Infrastructure,
  parts: Pick<Tenants, 'ledger' | 'alarms'> & {
    jobs: ReturnType<typeof mediaJobs>;
    links: ReturnType<typeof createLinks>;
    responses: ReturnType<typeof storedResponses>;
  },
) {
  const { log, clock, redactor, env: variables } = options;
  return defer(
    await ai({
      jobs: parts.jobs,
      links: parts.links,
      storedResponses: parts.responses,
      rejoinMs: config.responsesRejoinMs,
      ledger: parts.ledger,
      alarms: parts.alarms,
      env: env.reader,
      catalogFile: catalogFile(config),
      modelsFile: config.modelsFile,
      guideDirectory: assetPath('docs/guides'),
      localModels: config.localModels === 'on',
      timeouts: config,
      videoLimits: { pollMs: config.videoPollMs, maxBytes: config.videoMaxBytes },
      heartbeatMs: config.heartbeatMs,
      proxies: {
        https: variables['HTTPS_PROXY'] ?? variables['https_proxy'],
        http: variables['HTTP_PROXY'] ?? variables['http_proxy'],
        none: variables['NO_PROXY'] ?? variables['no_proxy'],
      },
      hide: (text) => redactor.hide(text),
      watch: upstream.observe,
      runDetached: telemetry.runDetached,
      breakerChannel: options.breakerChannel,
      traceparent: () => telemetry.traces.traceparent(),
      requestId: () => telemetry.request()?.requestId,
      log,
      clock,
    }),
  );
}
