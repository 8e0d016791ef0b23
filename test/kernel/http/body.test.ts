// Reading a body whose client leaves.
import { createServer, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { ContractOperation } from '../../../src/kernel/contract/operations.ts';
import { receiveBody } from '../../../src/kernel/http/body/body.ts';
import { closeServer, listen } from '../../support/local-server.ts';

test('a body is refused at once when its client left before it is read', async () => {
  const request = Promise.withResolvers<IncomingMessage>();
  const server = createServer((message) => request.resolve(message));
  onTestFinished(() => closeServer(server));
  const { port } = await listen(server);
  const socket = connect(port, '127.0.0.1');
  socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{');
  const message = await request.promise;
  const messageEnd = new Promise((resolve) => message.once('close', resolve));
  socket.destroy();
  await messageEnd;
  const operation = { body: { mediaTypes: ['application/json'] } } as unknown as ContractOperation;
  const limits = { maxBytes: 1_000, deadlineMs: 2_000 };
  await expect(receiveBody(message, operation, limits)).rejects.toThrow(
    'The body ended before it was complete.',
  );
});
