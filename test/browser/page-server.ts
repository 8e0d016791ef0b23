// A web server of one HTML page on a free port, which is an origin of its own for the browser.
import { createServer, type IncomingMessage } from 'node:http';
import { listen } from '../support/local-server.ts';

export interface PageServer {
  origin: string;
  close(): void;
}

/** Answers every request with the HTML that `write` returns for it. */
export async function startPageServer(write: (request: IncomingMessage) => string): Promise<PageServer> {
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end(write(request));
  });
  return {
    origin: (await listen(server)).url,
    close: () => server.close(),
  };
}
