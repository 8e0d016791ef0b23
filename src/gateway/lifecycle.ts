// Starts and stops a gateway: its listeners, its background work and its shutdown.
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { Assembly, Gateway } from './assembly.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Tenants } from './tenants.ts';
import type { openHttp } from './http-server.ts';

/**
 * `listen` starts the background work with the first address; `close` drains the
 * server and then closes every part.
 */
export function openLifecycle(
  { config, options, lifecycle, closers }: Assembly,
  parts: {
    infrastructure: Infrastructure;
    tenants: Tenants;
    models: { jobs: { start(): void }; responses: { start(): void } };
    project: { hasJobs: boolean };
    http: ReturnType<typeof openHttp>;
  },
): Pick<Gateway, 'listen' | 'close'> {
  const { infrastructure, tenants, models, project, http } = parts;
  const { telemetry, queue, changes } = infrastructure;

  return {
    async listen(listenAddress = { host: config.host, port: config.port }) {
      if (options.servesMetrics === false) options.log.debug({}, 'the primary process serves the metrics');
      else if ('host' in listenAddress) await telemetry.listen();
      // With a socket from a supervisor, the previous version may still hold the metrics port, so retry.
      // Before that, a supervised gateway listens at a Unix socket, and the previous version serves the
      // metrics.
      else if ('fd' in listenAddress)
        void listenWithRetries(() => telemetry.listen(), { lifecycle, options });
      // Only a serving process maintains the ledger: commands that only read the data must not settle the
      // holds of other processes.
      if (lifecycle.phase === 'created') {
        await tenants.credits.start();
        tenants.usage.start();
        // The first requests already need the limits and login origins of Bureaus.
        await tenants.bureaus.refresh();
      }
      const address = await http.server.listen(listenAddress);
      lifecycle.url = address.url;
      if (lifecycle.phase !== 'created') return address;
      lifecycle.phase = 'serving';
      changes.start();
      models.jobs.start();
      models.responses.start();
      // Start the queue now: a project's transaction that enqueues a job cannot wait for it to start.
      if (project.hasJobs) queue.start();
      if (infrastructure.hasLocalLogin()) options.log.info({}, localLoginNotice);
      return address;
    },
    async close({ noticeMs = 0, lingerMs = 0 } = {}) {
      lifecycle.phase = 'draining';
      // Concurrently, so that both share one drain period.
      const results = await Promise.allSettled([
        http.server.close({ drainMs: config.drainMs, noticeMs, lingerMs }),
        queue.stop({ timeoutMs: config.drainMs }),
      ]);
      await closers.close();
      for (const result of results) if (result.status === 'rejected') throw result.reason;
    },
  };
}

/** Warns the operator while callers on this machine can log in without credentials. */
export const localLoginNotice = [
  'The local login is open: every caller on this machine can log in without credentials, even through a proxy on it.',
  'Before you put a proxy in front of this server, set TOWNHALL_CITY_BASE_URL or TRUSTED_PROXIES, or LOCAL_LOGIN=false.',
].join(' ');

async function listenWithRetries(
  listen: () => Promise<unknown>,
  {
    lifecycle,
    options,
  }: { lifecycle: Assembly['lifecycle']; options: { clock: Pick<Clock, 'sleep'>; log: Log } },
): Promise<void> {
  for (let attempt = 1; lifecycle.phase !== 'draining'; attempt += 1) {
    try {
      await listen();
      return;
    } catch (error) {
      if (attempt === 1) options.log.warn({ err: error }, 'the metrics cannot be served yet');
      await options.clock.sleep(metricsRetryMs);
    }
  }
}

const metricsRetryMs = 500;
