// Bodies of a provider's error responses that arrive slowly or compressed.
import { createServer, type Server, type ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createUpstream } from '../../../../src/gateway/ai/upstream/client.ts';
import { defaultTimeouts } from '../../../../src/gateway/ai/upstream/deadlines.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { silentLog } from '../../../../src/kernel/log.ts';
import { closeServer, listen } from '../../../support/local-server.ts';

const errorBody = JSON.stringify({ error: { message: 'There is no such model.', code: 'model_gone' } });

const answers: Record<string, (response: ServerResponse) => void> = {
  // The body never ends.
  '/slow'(response) {
    response.writeHead(404, { 'content-type': 'application/json' }).write('{"error":');
  },
  '/gzip'(response) {
    response.writeHead(404, { 'content-encoding': 'gzip' }).end(gzipSync(errorBody));
  },
};

describe('the body of an error response', () => {
  let server: Server;
  let origin: string;
  beforeAll(async () => {
    server = createServer((request, response) => answers[request.url ?? '']?.(response));
    origin = (await listen(server)).url;
  });
  afterAll(() => closeServer(server));

  async function failureAt(
    path: string,
    { answerMs, signal }: { answerMs?: number; signal?: AbortSignal } = {},
  ) {
    const upstream = createUpstream({
      timeouts: { ...defaultTimeouts, answerMs: answerMs ?? defaultTimeouts.answerMs },
      proxies: {},
      clock: systemClock,
      log: silentLog,
      hide: (text) => text,
    });
    try {
      return await upstream
        .send({
          url: `${origin}${path}`,
          apiKey: undefined,
          streams: false,
          signal: signal ?? new AbortController().signal,
        })
        .catch((error: unknown) => error);
    } finally {
      await upstream.close();
    }
  }

  test.each([
    ['after five seconds', undefined],
    ['at the deadline of the answer', 300],
  ])('is given up %s, and the failure is that of its status', async (_when, answerMs) => {
    expect(await failureAt('/slow', { answerMs })).toMatchObject({
      code: 'upstream_refused',
      cause: { status: 404 },
    });
  });

  test('is given up when the caller disconnects', async () => {
    const reason = new Error('disconnected');
    const caller = new AbortController();
    setTimeout(() => caller.abort(reason), 300);
    expect(await failureAt('/slow', { signal: caller.signal })).toBe(reason);
  });

  test('is decompressed', async () => {
    expect(await failureAt('/gzip')).toMatchObject({
      message: 'There is no such model.',
      externalCode: 'model_gone',
    });
  });
});
