// Constructs the contract with its handlers, the HTTP server in front of it, and its readiness check.
import contractDocument from '../contract/gateway/bundle.json' with { type: 'json' };
import { assetExists, assetPath } from '../kernel/assets.ts';
import { withTimeout } from '../kernel/async.ts';
import { createContract } from '../kernel/contract/contract.ts';
import type { ContractOptions } from '../kernel/contract/contract.ts';
import { createRateLimiter } from '../kernel/http/rate-limits.ts';
import { trustProxies } from '../kernel/http/proxies.ts';
import { createSharedRateLimiter } from '../kernel/http/shared-rate-limiter.ts';
import { requireDescriptors } from '../kernel/descriptors.ts';
import { Problem } from '../kernel/problem.ts';
import { createServer } from '../kernel/http/server.ts';
import type { FilePages } from '../kernel/http/server.ts';
import { createResponseSockets, maxSocketMessageBytes } from './ai/index.ts';
import { loginPaths } from './contract-paths.ts';
import { frontPage } from './front-page.ts';
import { idempotencyCaller, identityLogFields, identityOfScheme } from './identity.ts';
import type { Identity } from './identity.ts';
import { restrictToOwnBureau } from './machine-scope.ts';
import { loginPages } from './login-page/index.ts';
import { createRequestLimiter } from './rate-limits.ts';
import { createCredentialRecheck } from './running-calls.ts';
import type { Assembly, CreateGatewayOptions } from './assembly.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Tenants } from './tenants.ts';

/**
 * Checks what requests depend on: database, journal, file descriptors and job queues. Rejects while one of
 * them is not ready.
 */
export function createReadiness(
  { database, lifecycle }: Assembly,
  { queue }: Infrastructure,
  {
    jobs,
    project,
    credits: creditsService,
  }: {
    jobs: { ready(): Promise<void> };
    project: { hasJobs: boolean };
    credits: { requireJournal(): void };
  },
): () => Promise<void> {
  return async () => {
    if (lifecycle.phase === 'draining')
      throw new Problem('unavailable', 'draining', 'This server is stopping.', {
        headers: { 'retry-after': '1' },
      });
    creditsService.requireJournal();
    await database.ping();
    await withTimeout(
      () => Promise.all([requireDescriptors(), jobs.ready(), project.hasJobs ? queue.ready() : undefined]),
      {
        ms: readyMs,
        error: () =>
          new Problem('unavailable', 'not_ready', 'The server is still starting.', {
            headers: { 'retry-after': '1' },
          }),
      },
    );
  };
}

// Readiness probes usually give up after a few seconds; answer before that.
const readyMs = 2_000;

/** The parts that serve requests. */
interface HttpParts {
  tenants: Tenants;
  handlers: ContractOptions<Identity>['handlers'];
}

/** The contract with its handlers, and the HTTP server in front of it. */
export function openHttp(assembly: Assembly, infrastructure: Infrastructure, parts: HttpParts) {
  const { config, options, lifecycle } = assembly;
  const { log, clock } = options;
  const { bureaus: bureauService } = parts.tenants;
  const contract = openContract(assembly, infrastructure, parts);
  const isUnlimited = config.rateUser === null || config.rateGuest === null;
  const pages = portalPages(options.buildPortal);
  const server = createServer({
    contract,
    surface: 'gateway',
    pages,
    frontPage: () =>
      frontPage({
        version: contractDocument.info.version,
        url: lifecycle.url ?? '',
        hasPortal: pages.length > 0,
        local: options.localEdition?.(),
      }),
    fixedPages: new Map(loginPages),
    log,
    clock,
    observer: infrastructure.telemetry.observer,
    nameIdentity: (identity) => identityLogFields(identity as Identity),
    callerOf: (identity) => idempotencyCaller(identity as Identity),
    cors: {
      origins: config.corsOrigins,
      scoped: {
        paths: loginPaths(contractDocument.paths),
        allows: (origin) => bureauService.hasLoginOrigin(origin),
      },
    },
    proxies: trustProxies(config.trustedProxies),
    ...(isUnlimited ? { limits: { maxConnections: Infinity, maxPerAddress: Infinity } } : {}),
    timeouts: {
      headersMs: config.headersMs,
      requestMs: config.requestMs,
      stalledMs: config.stalledMs,
      heartbeatMs: config.heartbeatMs,
    },
    sockets: [
      {
        paths: ['/v1/responses', '/v1/ai/responses'],
        maxMessageBytes: maxSocketMessageBytes,
        open: createResponseSockets(clock),
      },
    ],
  });
  followChanges(assembly, infrastructure, parts.tenants, server);
  return { server };
}

function openContract(
  { config, options, database, isLocalEdition }: Assembly,
  { idempotency }: Infrastructure,
  { tenants, handlers }: HttpParts,
) {
  const { log, clock } = options;
  return createContract<Identity>({
    definition: contractDocument,
    handlers: restrictToOwnBureau(handlers),
    identities: identityOfScheme,
    identify: tenants.identify,
    guest: { kind: 'guest' },
    admit: createRequestLimiter({
      // Replicas count together in the database; a single process counts in memory.
      limiter: isLocalEdition
        ? createRateLimiter({ clock })
        : createSharedRateLimiter({ database, schema: 'gateway', clock, log }),
      limits: {
        user: config.rateUser,
        guest: config.rateGuest,
        admin: config.rateAdmin,
        login: config.rateLogin,
      },
      requestsPerMinute: (bureauId) => tenants.bureaus.requestsPerMinute(bureauId),
    }),
    idempotency,
    callerOf: idempotencyCaller,
    validateResponses: options.validateResponses ?? false,
  });
}

/**
 * After each change on any replica, ends the running calls of revoked credentials and reloads the limits of
 * Bureaus.
 */
function followChanges(
  { options: { log }, closers }: Assembly,
  { changes }: Infrastructure,
  { identify, bureaus: bureauService }: Tenants,
  server: Pick<ReturnType<typeof createServer>, 'runningRequests'>,
): void {
  const recheckCredentials = createCredentialRecheck({
    runningRequests: () => server.runningRequests(),
    identify,
    log,
  });
  changes.onChange(() => {
    recheckCredentials();
    bureauService
      .refresh()
      .catch((error: unknown) => log.warn({ err: error }, 'the limits of the Bureaus could not be read'));
  });
  closers.defer(() => changes.stop());
}

// The server has /docs only when the portal exists or can be built.
function portalPages(build: CreateGatewayOptions['buildPortal']): FilePages[] {
  const directory = assetPath('build/docs');
  return build !== undefined || assetExists(directory) ? [{ prefix: '/docs', directory, build }] : [];
}
