// Error responses that are written to a socket directly, for bytes that Node could
// not parse as a request; they have the usual error shape.
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { id } from '../ids.ts';
import { forSurface, isPermanent, Problem, renderProblem, type Surface } from '../problem.ts';

const parseErrors: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: 'The headers of the request are too large.',
  ERR_HTTP_REQUEST_TIMEOUT: 'The request took too long to arrive.',
};

/** Responds to bytes that Node could not parse. */
export function refuseUnparsed(socket: Socket, error: NodeJS.ErrnoException, surface: Surface): void {
  // Node stores the response in progress here; a second response must not follow it.
  const { _httpMessage: response } = socket as { _httpMessage?: { headersSent: boolean } | null };
  if (!socket.writable || response?.headersSent === true || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const message = parseErrors[error.code ?? ''] ?? 'The request is not well-formed HTTP.';
  endWithProblem(socket, new Problem('bad_request', 'invalid_request', message), surface);
}

/** Writes the error and closes the connection. */
export function endWithProblem(socket: Socket, problem: Problem, surface: Surface): void {
  const requestId = id('req');
  const text = `${JSON.stringify(forSurface(renderProblem(problem, requestId), surface))}\n`;
  const lines = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(text)}`,
    `x-request-id: ${requestId}`,
    'x-content-type-options: nosniff',
    ...(isPermanent(problem) ? ['x-should-retry: false'] : []),
    ...Object.entries(problem.headers).map(([name, value]) => `${name}: ${value}`),
    'connection: close',
  ];
  socket.on('error', () => socket.destroy());
  socket.end(`${lines.join('\r\n')}\r\n\r\n${text}`);
  const timer = setTimeout(() => socket.destroy(), 1_000);
  timer.unref();
  socket.once('close', () => clearTimeout(timer));
}
