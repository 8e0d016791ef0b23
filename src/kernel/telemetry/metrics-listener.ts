// The listener for metrics, on a port of its own, so that a network may allow it separately. It
// serves one path, and refuses browser pages.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Log } from '../log.ts';
import type { Prometheus } from './prometheus.ts';

export interface MetricsListener {
  url: string;
  close(): Promise<void>;
}

/** Rejects when the address is not available. */
export async function listenForMetrics(
  place: { host: string; port: number },
  { prometheus, log }: { prometheus: Pick<Prometheus, 'contentType' | 'read'>; log: Log },
): Promise<MetricsListener> {
  const server = createServer(
    { requestTimeout: 10_000, headersTimeout: 5_000, keepAliveTimeout: 65_000 },
    (request, response) => {
      const isRead = request.method === 'GET' || request.method === 'HEAD';
      const fromPage =
        request.headers.origin !== undefined || (request.headers['sec-fetch-site'] ?? 'none') !== 'none';
      const path = (request.url ?? '').split('?', 1)[0];
      const plain = {
        'content-type': 'text/plain; charset=utf-8',
        'x-content-type-options': 'nosniff',
        'cache-control': 'no-store',
      };
      const refuse = (status: number, text: string): void =>
        void response.writeHead(status, plain).end(`${text}\n`);
      if (fromPage) return refuse(403, 'Web pages may not read the metrics.');
      if (path !== '/metrics') return refuse(404, 'Metrics are at /metrics.');
      if (!isRead) return refuse(405, 'Metrics are only read.');
      prometheus.read().then(
        (text) =>
          response
            .writeHead(200, { ...plain, 'content-type': prometheus.contentType })
            .end(request.method === 'HEAD' ? undefined : text),
        (error: unknown) => {
          log.error({ err: error }, 'the metrics could not be read');
          refuse(500, 'The metrics could not be read.');
        },
      );
    },
  );
  server.maxConnections = 32;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(place, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const { port } = server.address() as AddressInfo;
  const host = place.host.includes(':') ? `[${place.host}]` : place.host;
  return {
    url: `http://${host}:${port}/metrics`,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
