// The client's image model against a server that fails after it has accepted the job.

import { generateImage } from 'ai';
import { expect, test } from 'vitest';
import { createGatewayClient } from '../../clients/gateway/src/index.ts';
import { problem, sendJson, startScriptedServer } from './scripted-server.ts';

test('an image model submits no second job when its polls fail', async () => {
  const server = await startScriptedServer();
  try {
    server.script(({ url }, response) =>
      url === '/v1/ai/image/create'
        ? sendJson(response, 202, { job_id: 'job_1', status: 'queued', poll_after_ms: 1 })
        : sendJson(response, 503, problem('server_error', 'draining'), { 'retry-after': '0' }),
    );
    const scriptedClient = createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x' });
    await expect(
      generateImage({ model: scriptedClient.imageModel('acme/painter'), prompt: 'x' }),
    ).rejects.toMatchObject({ status: 503, isRetryable: false });
    // The poll has two retries.
    const paths = () => server.requests.map(({ url }) => url.split('/').at(-1));
    await expect.poll(paths).toEqual(['create', 'result', 'result', 'result', 'cancel']);
  } finally {
    await server.close();
  }
});

test('an abort does not wait until the job is canceled', async () => {
  const server = await startScriptedServer();
  try {
    const abort = new AbortController();
    // The cancellation gets no answer.
    server.script(({ url }, response) => {
      if (url === '/v1/ai/image/create')
        sendJson(response, 202, { job_id: 'job_1', status: 'queued', poll_after_ms: 1 });
      else if (url.endsWith('/result')) abort.abort();
    });
    const model = createGatewayClient({ baseUrl: server.baseUrl, token: 'th_usr_x' }).imageModel(
      'acme/painter',
    );
    await expect(generateImage({ model, prompt: 'x', abortSignal: abort.signal })).rejects.toMatchObject({
      name: 'AbortError',
    });
    await expect.poll(() => server.requests.at(-1)?.url).toContain('/cancel');
  } finally {
    await server.close();
  }
});
