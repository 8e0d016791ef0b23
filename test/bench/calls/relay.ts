// A bare relay, the lower bound for any gateway in Node: `relay.ts PORT PROVIDER_PORT`. It forwards
// body and answer over kept-alive connections without parsing them, and aborts the provider's
// request when its client disconnects.
import { createServer } from 'node:http';
import { Pool } from 'undici';

const [port = 0, providerPort = 0] = process.argv.slice(2).map(Number);
const pool = new Pool(`http://127.0.0.1:${providerPort}`, { connections: 64, pipelining: 1 });

createServer((request, response) => {
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    const abort = new AbortController();
    response.on('close', () => {
      if (!response.writableEnded) abort.abort();
    });
    pool
      .request({
        path: '/v1/chat/completions',
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: 'Bearer provider' },
        body: Buffer.concat(pieces),
        signal: abort.signal,
      })
      .then(({ statusCode, headers, body }) => {
        response.writeHead(statusCode, { 'content-type': String(headers['content-type']) });
        body.pipe(response);
        body.on('error', () => response.destroy());
      })
      .catch(() => response.destroy());
  });
}).listen(port, '127.0.0.1');
