// The listener for metrics, on a port of its own, so that a network may allow it separately. It
// serves one path, and refuses browser pages.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { listenAt } from '../http/listen.ts';
import type { Log } from '../log.ts';
import type { Prometheus } from './prometheus.ts';

export interface MetricsListener {
  url: string;
  close(): Promise<void>;
}

interface MetricsSource {
  prometheus: Pick<Prometheus, 'contentType' | 'read'>;
  log: Log;
}

/** Rejects when the address is not available. */
export async function listenForMetrics(
  address: { host: string; port: number },
  source: MetricsSource,
): Promise<MetricsListener> {
  const server = createServer(
    { requestTimeout: 10_000, headersTimeout: 5_000, keepAliveTimeout: 65_000 },
    (request, response) => void answer(request, response, source),
  );
  server.maxConnections = 32;
  const { url } = await listenAt(server, address);
  return {
    url: `${url}/metrics`,
    async close() {
      const closePromise = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closePromise;
    },
  };
}

/** The text at every other path, by which `townhall doctor` recognizes the listener. */
export const metricsNotice = 'Metrics are at /metrics.\n';

const plainHeaders = {
  'content-type': 'text/plain; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { prometheus, log }: MetricsSource,
): Promise<void> {
  const refuse = (status: number, text: string): void =>
    void response.writeHead(status, plainHeaders).end(text);
  const [path] = (request.url ?? '').split('?', 1);
  if (isFromPage(request)) return refuse(403, 'Web pages may not read the metrics.\n');
  if (path !== '/metrics') return refuse(404, metricsNotice);
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return refuse(405, 'Use GET to read the metrics.\n');
  try {
    const text = await prometheus.read();
    response.writeHead(200, { ...plainHeaders, 'content-type': prometheus.contentType });
    response.end(request.method === 'HEAD' ? undefined : text);
  } catch (error) {
    log.error({ err: error }, 'the metrics could not be read');
    refuse(500, 'The metrics could not be read.\n');
  }
}

function isFromPage({ headers }: IncomingMessage): boolean {
  return headers.origin !== undefined || (headers['sec-fetch-site'] ?? 'none') !== 'none';
}
