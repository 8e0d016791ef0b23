// Keeps a fixed number of kept-alive connections busy with one request each and counts the answers.
// Run as `load.ts PORT SECONDS CONNECTIONS`; prints one JSON object. It implements only the HTTP it
// needs, so that the load takes little processor time from the measured server.
import { connect } from 'node:net';
import { benchedPath } from './document.ts';

const [port = 0, seconds = 1, connections = 1] = process.argv.slice(2).map(Number);
const body = JSON.stringify({
  model: 'local/echo',
  messages: [
    { role: 'system', content: 'You answer in one sentence.' },
    { role: 'user', content: 'What does a town hall keep under its floor?' },
  ],
  max_output_tokens: 256,
});
const request = Buffer.from(
  [
    `POST ${benchedPath} HTTP/1.1`,
    `host: 127.0.0.1:${port}`,
    'authorization: Bearer th_usr_0123456789abcdefghijABCDEFGHIJ0123456789abcdefghi',
    'content-type: application/json',
    'accept: application/json',
    'user-agent: bench',
    `content-length: ${Buffer.byteLength(body)}`,
    '',
    body,
  ].join('\r\n'),
);

let answers = 0;
let failures = 0;
let isRunning = true;

function sendRequests(): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(request));
    let buffer = '';
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      buffer += chunk.toString('latin1');
      const end = buffer.indexOf('\r\n\r\n');
      if (end < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(buffer)?.[1] ?? 0);
      if (buffer.length < end + 4 + length) return;
      if (buffer.startsWith('HTTP/1.1 200 ')) answers += 1;
      else failures += 1;
      buffer = '';
      if (isRunning) socket.write(request);
      else socket.end();
    });
    socket.on('error', () => {
      failures += 1;
    });
    // A server that ends a connection leaves a request without an answer, and the load with one client less.
    socket.on('end', () => {
      if (isRunning) failures += 1;
    });
    socket.on('close', () => resolve());
  });
}

const startedMs = performance.now();
setTimeout(() => {
  isRunning = false;
}, seconds * 1_000);
await Promise.all(Array.from({ length: connections }, sendRequests));
process.stdout.write(
  JSON.stringify({
    answers,
    failures,
    perSecond: Math.round((answers / (performance.now() - startedMs)) * 1_000),
  }),
);
