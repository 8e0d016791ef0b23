// Requests that fetch cannot send: it sets Host and Origin itself and sends no header twice.
import { once } from 'node:events';
import { request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';

export interface RawAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Sends exactly these headers, in their order. */
export async function rawRequest(
  serverUrl: string,
  method: string,
  path: string,
  headers: [string, string][],
  body = '',
): Promise<RawAnswer> {
  const { hostname, port } = new URL(serverUrl);
  const outgoing = request({
    hostname,
    port,
    method,
    path,
    agent: false,
    setHost: false,
    headers: headers.flat() as never,
  });
  outgoing.end(body);
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, body: text };
}

/**
 * Sends the bytes as they are and resolves with everything received until the server closes, or
 * after `silenceMs` without a byte.
 */
export async function sendBytes(port: number, bytes: string | Buffer, silenceMs = 15_000): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  let answer = '';
  return new Promise((resolve) => {
    let timer = setTimeout(() => socket.destroy(), silenceMs);
    socket.on('data', (chunk) => {
      answer += chunk.toString('latin1');
      clearTimeout(timer);
      timer = setTimeout(() => socket.destroy(), silenceMs);
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(answer);
    });
    socket.write(bytes);
  });
}
