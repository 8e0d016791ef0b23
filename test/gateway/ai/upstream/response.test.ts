// The body of a provider's response, as undici delivers it to a slow reader.
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { Agent } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ProviderResponse } from '../../../../src/gateway/ai/upstream/response.ts';
import { listen } from '../../../support/local-server.ts';

const answers: Record<string, (response: ServerResponse) => void> = {
  '/joined'(response) {
    for (let index = 0; index < 50; index += 1) response.write(`<${index}>`);
    response.end();
  },
  '/endless'(response) {
    const write = (): void => {
      while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
    };
    response.on('drain', write);
    write();
  },
  '/broken'(response) {
    response.write('before');
    // Later, so that the bytes are sent before the connection breaks.
    setTimeout(() => response.destroy(), 50);
  },
  '/silent'() {},
};

describe('ProviderResponse', () => {
  let server: Server;
  let origin: string;
  const agent = new Agent({ connections: 1 });
  beforeAll(async () => {
    server = createServer((request, response) => answers[request.url ?? '']?.(response));
    origin = (await listen(server)).url;
  });
  afterAll(async () => {
    await agent.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  function request(path: string): ProviderResponse {
    const response = new ProviderResponse();
    agent.dispatch({ origin, path, method: 'GET' }, response);
    return response;
  }

  test('joins chunks that arrived together', async () => {
    const response = request('/joined');
    await response.head();
    const pieces: string[] = [];
    for await (const piece of response) pieces.push(Buffer.from(piece).toString());
    expect(pieces.join('')).toBe(Array.from({ length: 50 }, (_, index) => `<${index}>`).join(''));
    expect(pieces.length).toBeLessThan(10);
  });

  test('stops reading the socket while its reader is slow', async () => {
    const response = request('/endless');
    await response.head();
    await response.next();
    // The server goes on writing. Its chunks must wait in the socket, not in the response's queue.
    await pause(200);
    const { value } = await response.next();
    // The queue is paused at 64 KiB; the chunk that reached the limit may exceed it.
    expect(value?.byteLength).toBeGreaterThan(0);
    expect(value?.byteLength).toBeLessThanOrEqual(128 * 1024);
    expect((await response.next()).value?.byteLength).toBeGreaterThan(0);
    response.abort(new Error('enough'));
    await expect(response.next()).rejects.toThrow('enough');
  });

  test('delivers the bytes before a failure first', async () => {
    const response = request('/broken');
    await response.head();
    // Listens only now, as the connection of the test before may still be closing until the head arrives.
    await once(agent, 'disconnect');
    expect(Buffer.from((await response.next()).value ?? []).toString()).toBe('before');
    await expect(response.next()).rejects.toThrow(/closed|terminated/);
  });

  test('aborts a request that waits in the queue', async () => {
    const firstRequest = request('/silent');
    const secondRequest = request('/joined');
    const head = secondRequest.head();
    secondRequest.abort(new Error('aborted'));
    await expect(head).rejects.toThrow('aborted');
    firstRequest.abort(new Error('aborted'));
    await expect(firstRequest.head()).rejects.toThrow('aborted');
    const thirdRequest = request('/joined');
    await thirdRequest.head();
    expect(thirdRequest.statusCode).toBe(200);
    await thirdRequest.return();
  });
});
