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
    expect(server.requests.map(({ url }) => url.split('/').at(-1))).toEqual([
      'create',
      'result',
      'result',
      'result',
      'cancel',
    ]);
  } finally {
    await server.close();
  }
});
