// A web server of one HTML page on a free port, which is an origin of its own for the browser.
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface PageServer {
  origin: string;
  close(): void;
}

/** Answers every request with the HTML that `write` returns for it. */
export async function startPageServer(write: (request: IncomingMessage) => string): Promise<PageServer> {
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end(write(request));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => server.close(),
  };
}
