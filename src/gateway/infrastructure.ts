// Constructs what the other services record to and read from: telemetry, audit log, settings, queue.
import { createChanges } from '../kernel/data/changes.ts';
import { createIdempotency } from '../kernel/data/idempotency.ts';
import { createJobs } from '../kernel/data/jobs.ts';
import { openTelemetry } from '../kernel/telemetry/telemetry.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { registerDatabaseMetrics } from '../kernel/telemetry/database-metrics.ts';
import { mayLogInLocally } from './accounts/index.ts';
import { audit, auditStore } from './audit/index.ts';
import { explainUnusableValue, isStartupKey } from './config.ts';
import { env as environment, envStore } from './env/index.ts';
import { mail } from './mail.ts';
import { createUpstreamObserver } from './telemetry/index.ts';
import type { Assembly } from './assembly.ts';

export type Infrastructure = Awaited<ReturnType<typeof openInfrastructure>>;

export async function openInfrastructure({
  config,
  options,
  database,
  vault,
  services,
  lifecycle,
  isLocalEdition,
  defer,
}: Assembly) {
  const { clock, log, redactor } = options;
  const settings = telemetrySettings(config);
  for (const secret of telemetrySecrets(settings)) redactor.hold(secret);
  const telemetry = defer(
    await openTelemetry({
      settings,
      surface: 'gateway',
      version: options.version ?? 'unknown',
      hide: (text) => redactor.hide(text),
      clock,
      log,
    }),
  );
  const upstream = createUpstreamObserver({ telemetry, clock });
  registerDatabaseMetrics(telemetry.metrics, database);
  const changes = createChanges({ database, schema: 'gateway', clock, log });
  const auditLog = defer(audit({ store: auditStore(database), log, clock }));
  const maxBytesPerCaller = config.answersQuotaMb * 1024 * 1024;
  const idempotency = defer(
    createIdempotency({ database, schema: 'gateway', clock, log, maxBytesPerCaller }),
  );
  const envService = defer(
    await environment({
      store: envStore(database),
      vault,
      environment: options.env,
      keyRules: { isReserved: isStartupKey, explainUnusable: explainUnusableValue },
      declarers: () => services.map(({ name, env }) => ({ id: name, env })),
      audit: auditLog,
      changes,
      redactor,
      clock,
      log,
    }),
  );
  const mailer = defer(mail({ env: envService.reader }));
  const queue = createJobs(database, { schema: 'pgboss', log });
  const cityBaseUrl = () => envService.reader.get('TOWNHALL_CITY_BASE_URL') ?? config.cityBaseUrl;
  return {
    telemetry,
    upstream,
    changes,
    audit: auditLog,
    idempotency,
    env: envService,
    mail: mailer,
    queue,
    cityBaseUrl,
    /**
     * The address for links; null until it is configured or, in the local edition, until the server listens.
     */
    publicUrl: () => cityBaseUrl() ?? (isLocalEdition ? lifecycle.url : null),
    hasLocalLogin: () => mayLogInLocally({ ...config, cityBaseUrl: cityBaseUrl(), engine: database.engine }),
  };
}
