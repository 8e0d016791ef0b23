// Creates the load of one measurement in a process of its own: `load.ts JSON`, a LoadOptions. Keeps
// `clients` connections busy with one request each, for `seconds` or for `calls` calls, and prints
// one LoadResult as JSON.
import { Agent, request } from 'node:http';
import { median, quantile } from '../statistics.ts';

export interface LoadOptions {
  url: string;
  headers: Record<string, string>;
  body: object;
  clients: number;
  /** The duration of the load; exactly one of `seconds` and `calls`. */
  seconds?: number;
  calls?: number;
  expectedStatus: number;
}

/** Times in milliseconds, of calls with the expected status. */
export interface LoadResult {
  calls: number;
  errors: number;
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
  firstByteMs: number;
}

const options = JSON.parse(process.argv[2] ?? '{}') as LoadOptions;
const url = new URL(options.url);
const body = Buffer.from(JSON.stringify(options.body));
const agent = new Agent({ keepAlive: true, maxSockets: options.clients });
const headers = { ...options.headers, 'content-type': 'application/json', 'content-length': body.length };
const durations: number[] = [];
const firstBytes: number[] = [];
let errors = 0;

function call(): Promise<void> {
  return new Promise((resolve) => {
    const startedMs = performance.now();
    let firstMs: number | undefined;
    // A connection that breaks in the middle of a body fails both the request and its response.
    let hasFailed = false;
    const fail = (): void => {
      if (hasFailed) return;
      hasFailed = true;
      errors += 1;
      resolve();
    };
    const outgoing = request(
      { host: url.hostname, port: url.port, path: url.pathname, method: 'POST', headers, agent },
      (response) => {
        response.on('data', () => (firstMs ??= performance.now()));
        response.on('error', fail);
        response.on('end', () => {
          if (response.statusCode !== options.expectedStatus) return fail();
          const endedMs = performance.now();
          durations.push(endedMs - startedMs);
          firstBytes.push((firstMs ?? endedMs) - startedMs);
          resolve();
        });
      },
    );
    outgoing.on('error', fail);
    outgoing.end(body);
  });
}

const startedMs = performance.now();
let remaining = options.calls ?? Number.POSITIVE_INFINITY;
const endMs = startedMs + (options.seconds ?? Number.POSITIVE_INFINITY) * 1_000;

async function runClient(): Promise<void> {
  while (remaining > 0 && performance.now() < endMs) {
    remaining -= 1;
    await call();
  }
}

await Promise.all(Array.from({ length: options.clients }, runClient));
const elapsedSeconds = (performance.now() - startedMs) / 1_000;
agent.destroy();
const result: LoadResult = {
  calls: durations.length,
  errors,
  perSecond: durations.length / elapsedSeconds,
  p50Ms: median(durations),
  p99Ms: quantile(durations, 0.99),
  firstByteMs: median(firstBytes),
};
process.stdout.write(JSON.stringify(result));
