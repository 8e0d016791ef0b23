// A steady load for tests of upgrades and restarts: plain requests and streams over kept-alive
// connections. Counts the outcomes: an answer other than 200 and a broken connection are failures,
// and a stream without `[DONE]` was cut.
import { Agent, request } from 'node:http';

export interface LoadOptions {
  /** Base URL without a trailing slash. */
  url: string;
  /** A user's token for the streams. */
  token: string;
  /** Path of the plain requests, sent without a credential. */
  path: string;
  plainWorkers: number;
  streamWorkers: number;
  /** Words of each stream, and the pause after each word. */
  words?: number;
  gapMs?: number;
}

export interface Tally {
  requests: number;
  streams: number;
  failures: string[];
  cutStreams: number;
  /** Longest time of a plain request. */
  longestMs: number;
}

export interface Load {
  readonly tally: Tally;
  /** Waits for the running requests. */
  stop(): Promise<Tally>;
}

const timeoutMs = 60_000;
const pauseMs = 5;

export function startLoad({
  url,
  token,
  path,
  plainWorkers,
  streamWorkers,
  words = 20,
  gapMs = 50,
}: LoadOptions): Load {
  const agent = new Agent({ keepAlive: true, maxSockets: Infinity });
  const tally: Tally = { requests: 0, streams: 0, failures: [], cutStreams: 0, longestMs: 0 };
  let isRunning = true;

  async function sendPlain(): Promise<void> {
    const startedMs = performance.now();
    tally.requests += 1;
    try {
      const { status, text } = await send(agent, `${url}${path}`, { method: 'GET', headers: {} });
      if (status !== 200) tally.failures.push(`GET ${path}: ${status} ${text.slice(0, 200)}`);
    } catch (error) {
      tally.failures.push(
        `GET ${path}: ${(error as NodeJS.ErrnoException).code ?? ''} ${(error as Error).message}`,
      );
    }
    tally.longestMs = Math.max(tally.longestMs, performance.now() - startedMs);
  }

  async function sendStream(): Promise<void> {
    tally.requests += 1;
    tally.streams += 1;
    const body = JSON.stringify({
      model: 'local/echo',
      stream: true,
      messages: [{ role: 'user', content: `@delay ${gapMs}\n${'word '.repeat(words)}` }],
    });
    try {
      const { status, text } = await send(
        agent,
        `${url}/v1/ai/chat/completions`,
        { method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } },
        body,
      );
      if (status !== 200) tally.failures.push(`stream: ${status} ${text.slice(0, 200)}`);
      else if (!text.endsWith('data: [DONE]\n\n')) {
        tally.cutStreams += 1;
        tally.failures.push(`stream: cut after ${text.length} characters: ${text.slice(-200)}`);
      }
    } catch (error) {
      tally.cutStreams += 1;
      tally.failures.push(
        `stream: ${(error as NodeJS.ErrnoException).code ?? ''} ${(error as Error).message}`,
      );
    }
  }

  async function work(sendOne: () => Promise<void>): Promise<void> {
    while (isRunning) {
      await sendOne();
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  const workers = [
    ...Array.from({ length: plainWorkers }, () => work(sendPlain)),
    ...Array.from({ length: streamWorkers }, () => work(sendStream)),
  ];
  return {
    tally,
    async stop() {
      isRunning = false;
      await Promise.all(workers);
      agent.destroy();
      return tally;
    },
  };
}

function send(
  agent: Agent,
  url: string,
  options: { method: string; headers: Record<string, string> },
  body?: string,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const clientRequest = request(url, { agent, ...options }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => (text += piece));
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    clientRequest.setTimeout(timeoutMs, () => clientRequest.destroy(new Error('no answer in time')));
    clientRequest.on('error', reject);
    clientRequest.end(body);
  });
}
