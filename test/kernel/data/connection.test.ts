// TLS of a database connection, against a server with a self-signed certificate.
import { createServer } from 'node:net';
import { TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openConnection } from '../../../src/kernel/data/connection.ts';
import { listen } from '../../support/local-server.ts';

// Created by openssl for this test; no other program trusts it.
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgY9bNU6837VLhTJsY
amY6VxNGR8ZU2rJsCu0Bj4hvhs6hRANCAAQIGhxEL9U6mwy9QkM6XRL/jWLHyZNW
1TMjHYR5LahTG5L06FlEKWevqarXhmjwhJSEiZ+P+SBOH++cFh1Q1Buj
-----END PRIVATE KEY-----`;
const cert = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUbY3qnkeF6F78QHcDM+LQ8Y35fzwwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgwNTIxNTlaGA8yMTI2MTEwNDA1MjE1
OVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAga
HEQv1TqbDL1CQzpdEv+NYsfJk1bVMyMdhHktqFMbkvToWUQpZ6+pqteGaPCElISJ
n4/5IE4f75wWHVDUG6OjUzBRMB0GA1UdDgQWBBS0B/fA4/NJqVEkhIraFNw4oaat
6jAfBgNVHSMEGDAWgBS0B/fA4/NJqVEkhIraFNw4oaat6jAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIBw7bG6Pmp3cqLPRCTIDl+KtW4aPfCv06liu
B1a/g4fOAiEAhTqPjzxpqphoI6GCl1x3TjAwmwEN5LTKvIlxIo0ceZo=
-----END CERTIFICATE-----`;

/** A server that accepts the SSLRequest of PostgreSQL's protocol. Returns its port. */
async function startTlsServer(): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.once('data', () => {
      socket.write('S');
      new TLSSocket(socket, { isServer: true, key, cert }).on('error', () => socket.destroy());
    });
  });
  onTestFinished(() => void server.close());
  return (await listen(server)).port;
}

describe('the certificate of a database server', () => {
  it.each(['true', 'verify-full', 'verify-ca'])('is verified with ssl=%s', async (tls) => {
    const target = { hosts: ['127.0.0.1'], ports: [await startTlsServer()], tls };
    await expect(openConnection(target, 5_000)).rejects.toThrow(/self-signed certificate/);
  });

  it.each(['require', 'prefer', 'allow'])('is not verified with ssl=%s', async (tls) => {
    const target = { hosts: ['127.0.0.1'], ports: [await startTlsServer()], tls };
    const stream = await openConnection(target, 5_000);
    expect(stream).toBeInstanceOf(TLSSocket);
    stream.destroy();
  });
});
