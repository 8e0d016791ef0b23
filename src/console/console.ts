// The server of the console. The agent's token stays in the server: a page exchanges a one-time
// code for a key and sends the key with every call, and the server forwards the call if it is on its
// list of operations. There is no cookie, since browsers send cookies to every port of a host
// (docs/decisions/2026-11-22-console-key.md).
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { assetPath } from '../kernel/assets.ts';
import { systemClock, type Clock } from '../kernel/clock.ts';
import { id } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import { linkAgent } from './agent-link.ts';
import { openAssets } from './assets.ts';
import type { ConsoleConfig } from './config.ts';
import { sendProblem, setHeaders } from './http.ts';
import { createOneTimeLogin } from './one-time-login.ts';
import { createRoutes, type ConsoleRequest } from './routes.ts';

export interface ConsoleOptions {
  log: Log;
  clock?: Clock;
}

export interface Console {
  listen(): Promise<{ url: string; port: number }>;
  /** A login address for one browser, valid once; it must not be logged. */
  loginUrl(): string;
  /** Ends the streams and closes the port. */
  close(): Promise<void>;
}

/** Lists the pages; nothing listens yet. */
export async function createConsole(config: ConsoleConfig, options: ConsoleOptions): Promise<Console> {
  const { log, clock = systemClock } = options;
  const login = createOneTimeLogin({
    codeTtlMs: config.codeTtlMs,
    sessionTtlMs: config.sessionTtlMs,
    clock,
  });
  const closing = new AbortController();
  let url = '';
  const serve = createRoutes({
    assets: await openAssets(assetPath('src/console/pages')),
    link: linkAgent(config),
    login,
    closing: closing.signal,
    baseUrl: () => url,
  });
  const server = createServer((request, response) => {
    const context = { request, response, requestId: id('req') };
    setHeaders(response, context.requestId);
    serve(context).catch((error: unknown) => sendError(context, error, log));
  });
  server.headersTimeout = 10_000;
  server.requestTimeout = 60_000;

  return {
    async listen() {
      await listenOnLoopback(server, config.port);
      const { port } = server.address() as AddressInfo;
      url = `http://127.0.0.1:${port}`;
      return { url, port };
    },
    loginUrl: () => `${url}/open?code=${login.createCode()}`,
    async close() {
      closing.abort();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

function sendError({ response, requestId }: ConsoleRequest, error: unknown, log: Log): void {
  if (response.headersSent) return void response.destroy();
  const problem =
    error instanceof Problem
      ? error
      : new Problem('internal', 'internal_error', 'Something went wrong in the console.', { cause: error });
  if (problem.kind === 'internal') log.error({ err: error, requestId }, 'a request of the console failed');
  sendProblem(response, problem, requestId);
}

async function listenOnLoopback(server: Server, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  }).catch((cause: unknown) => {
    const isInUse = (cause as NodeJS.ErrnoException).code === 'EADDRINUSE';
    throw new Error(
      isInUse
        ? `The port ${port} is in use; choose another one with --port, or 0 for any free port.`
        : `The console cannot listen on the port ${port}.`,
      { cause },
    );
  });
}
