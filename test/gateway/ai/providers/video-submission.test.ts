// The submission of a video job that fails: only one that the provider cannot have accepted is retried.
import { createServer, type Server } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { asyncVideoModel } from '../../../../src/gateway/ai/providers/async-video.ts';
import { createUpstream, type Upstream } from '../../../../src/gateway/ai/upstream/client.ts';
import { defaultTimeouts } from '../../../../src/gateway/ai/upstream/deadlines.ts';
import { isTransient } from '../../../../src/gateway/ai/upstream/retry.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { silentLog } from '../../../../src/kernel/log.ts';
import { Problem } from '../../../../src/kernel/problem.ts';
import { closeServer, listen } from '../../../support/local-server.ts';
import { catalogModel } from '../catalog-model.ts';

describe('a video job whose submission fails', () => {
  let server: Server;
  let origin: string;
  let upstream: Upstream;
  beforeAll(async () => {
    // The first segment of the path is the status; without one the connection breaks.
    server = createServer((request, response) => {
      request.resume().on('end', () => {
        const status = Number(request.url?.split('/')[1]);
        if (Number.isNaN(status)) response.destroy();
        else response.writeHead(status).end();
      });
    });
    origin = (await listen(server)).url;
    upstream = createUpstream({
      timeouts: defaultTimeouts,
      proxies: {},
      clock: systemClock,
      log: silentLog,
      hide: (text) => text,
    });
  });
  afterAll(async () => {
    await upstream.close();
    await closeServer(server);
  });

  async function submissionFailure(baseUrl: string): Promise<Problem> {
    const model = asyncVideoModel(catalogModel({ id: 'acme/film' }), 'openai', {
      upstream,
      baseUrl,
      apiKey: 'the key',
      idleMs: undefined,
      sdkModels: new WeakMap(),
      clock: { sleep: async () => {} },
      limits: { pollMs: 1, maxBytes: 1_000_000 },
    });
    const call = {
      prompt: 'a boat',
      durationSeconds: undefined,
      framesPerSecond: undefined,
      size: undefined,
      aspectRatio: undefined,
      seed: undefined,
      images: [],
      options: {},
    };
    const error: unknown = await model
      .submit(call, new AbortController().signal)
      .catch((cause: unknown) => cause);
    if (!(error instanceof Problem)) throw new Error(`expected a Problem, got ${String(error)}`);
    return error;
  }

  test.each(['broken', '502', '504'])('is not submitted again after: %s', async (failure) => {
    const problem = await submissionFailure(`${origin}/${failure}`);
    expect(problem.message).toContain('not submitted again');
    expect(isTransient(problem)).toBe(false);
  });

  test.each(['429', '503'])('is submitted again after the status %s', async (status) => {
    expect(isTransient(await submissionFailure(`${origin}/${status}`))).toBe(true);
  });

  test('is submitted again when no connection was made', async () => {
    const closedServer = createServer();
    const { url } = await listen(closedServer);
    await closeServer(closedServer);
    expect(isTransient(await submissionFailure(url))).toBe(true);
  });
});
