// A scripted OTLP collector: receives spans over HTTP with JSON, or accepts connections and stays silent.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { closeServer, listen, readBody } from './local-server.ts';

/** The kinds of spans by their numbers in OTLP. */
export const spanKinds = { internal: 1, server: 2, client: 3 };
/** The status code in OTLP that marks a failure. */
const errorStatus = 2;

export interface CollectedSpan {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  /** Ids of the linked spans. */
  links: { traceId: string; spanId: string }[];
  /** One of `spanKinds`. */
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

const spanTimeoutMs = 60_000;

/** `silent` accepts connections and never answers. */
export async function startCollector({ silent = false } = {}): Promise<Collector> {
  const spans: CollectedSpan[] = [];
  const bodies: string[] = [];
  const headers: Record<string, unknown>[] = [];
  const watchers = new Set<() => void>();
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = (await readBody(request)).toString('utf8');
    if (silent) return;
    bodies.push(body);
    headers.push({ ...request.headers, path: request.url });
    spans.push(...spansIn(body));
    for (const check of watchers) check();
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  };
  const server = createServer((request, response) => {
    // The sender may disconnect before the end of its request.
    serve(request, response).catch(() => response.destroy());
  });
  return {
    url: (await listen(server)).url,
    spans,
    bodies,
    headers,
    waitFor: (matches) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`No such span among: ${spans.map(({ name }) => name).join(', ')}`)),
          spanTimeoutMs,
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
    close: () => closeServer(server),
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
        failed: span.status?.code === errorStatus,
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
