// A scripted OTLP collector: receives spans over HTTP with JSON, and can be slow or unreachable.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface CollectedSpan {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  /** Ids of the linked spans. */
  links: { traceId: string; spanId: string }[];
  kind: number;
  failed: boolean;
  durationMs: number;
  attributes: Record<string, unknown>;
  resource: Record<string, unknown>;
}

export interface Collector {
  url: string;
  spans: CollectedSpan[];
  /** Every raw body, to check that secrets are absent. */
  bodies: string[];
  headers: Record<string, unknown>[];
  /** Waits for a matching span. */
  waitFor(matches: (span: CollectedSpan) => boolean): Promise<CollectedSpan>;
  close(): Promise<void>;
}

interface Value {
  stringValue?: string;
  intValue?: number | string;
  doubleValue?: number;
  boolValue?: boolean;
}
type Attributes = { key: string; value: Value }[];
interface RawSpan {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  links?: { traceId: string; spanId: string }[];
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  status?: { code?: number };
  attributes?: Attributes;
}

/** `silent` accepts connections and never answers. */
export async function startCollector({ silent = false } = {}): Promise<Collector> {
  const spans: CollectedSpan[] = [];
  const bodies: string[] = [];
  const headers: Record<string, unknown>[] = [];
  const watchers = new Set<() => void>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      if (silent) return;
      const body = Buffer.concat(chunks).toString('utf8');
      bodies.push(body);
      headers.push({ ...request.headers, path: request.url });
      spans.push(...spansIn(body));
      for (const check of watchers) check();
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    bodies,
    headers,
    waitFor: (matches) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`No such span among: ${spans.map(({ name }) => name).join(', ')}`)),
          60_000,
        );
        const check = () => {
          const span = spans.find(matches);
          if (span === undefined) return;
          clearTimeout(timer);
          watchers.delete(check);
          resolve(span);
        };
        watchers.add(check);
        check();
      }),
    async close() {
      const closePromise = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closePromise;
    },
  };
}

function spansIn(body: string): CollectedSpan[] {
  const { resourceSpans = [] } = JSON.parse(body) as {
    resourceSpans?: { resource?: { attributes?: Attributes }; scopeSpans: { spans: RawSpan[] }[] }[];
  };
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        name: span.name,
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? '',
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId })),
        kind: span.kind,
        failed: span.status?.code === 2,
        durationMs: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1e6,
        attributes: plainAttributes(span.attributes),
        resource: plainAttributes(resource?.attributes),
      })),
    ),
  );
}

function plainAttributes(attributes: Attributes = []): Record<string, unknown> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ??
        value.boolValue ??
        value.doubleValue ??
        (value.intValue === undefined ? undefined : Number(value.intValue)),
    ]),
  );
}
