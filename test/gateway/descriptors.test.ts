// Readiness of a gateway whose process has no file descriptors left. It runs in its own process, with a low
// limit.
import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { Agent, get } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../support/databases.ts';
import { testMasterKey } from '../support/gateway.ts';

// The embedded engine keeps up to a hundred files open.
const descriptorLimit = inject('databaseSource')?.engine === 'embedded' ? 256 : 160;
let place: DatabasePlace;
let child: ChildProcess | undefined;
let url: URL;
const journal = join(tmpdir(), `townhall-journal-${randomUUID()}`);
const sockets: Socket[] = [];
// Its one connection is opened before the limit is reached.
const agent = new Agent({ keepAlive: true, maxSockets: 1 });

beforeAll(async () => {
  place = await makeDatabase();
  const databaseSettings: Record<string, string> = databaseEnv(place.options);
  const settings = {
    RATE_LIMIT_USER: 'off',
    RATE_LIMIT_GUEST: 'off',
    LOG_LEVEL: 'silent',
    // The default of ten seconds would close the idle sockets of this test.
    TIMEOUT_HEADERS_MS: '60000',
  };
  const script = join(import.meta.dirname, '../support/gateway-process.ts');
  const command = `ulimit -n ${descriptorLimit}; exec "$0" "$1"`;
  const gatewayProcess = spawn('/bin/sh', ['-c', command, process.execPath, script], {
    env: {
      PATH: process.env['PATH'] ?? '',
      HOST: '127.0.0.1',
      PORT: '0',
      TOWNHALL_MASTER_KEY: testMasterKey,
      JOURNAL_PATH: journal,
      ...settings,
      ...databaseSettings,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child = gatewayProcess;
  const lines = createInterface({ input: gatewayProcess.stdout });
  const [line] = (await once(lines, 'line')) as [string];
  url = new URL((JSON.parse(line) as { url: string }).url);
});
afterAll(async () => {
  for (const socket of sockets) socket.destroy();
  agent.destroy();
  if (child !== undefined) {
    const exit = once(child, 'close');
    child.kill('SIGTERM');
    await exit;
  }
  await place?.remove();
  await rm(journal, { recursive: true, force: true });
});

function readReadiness(): Promise<{ status: number; body: { error?: { code: string } } }> {
  return new Promise((resolve, reject) => {
    get(new URL('/ready', url), { agent }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.once('end', () =>
        resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) as { error?: { code: string } } }),
      );
    }).once('error', reject);
  });
}

function openSockets(count: number): Promise<unknown> {
  return Promise.all(
    Array.from({ length: count }, () => {
      const socket = connect(Number(url.port), url.hostname).on('error', () => undefined);
      sockets.push(socket);
      return new Promise((resolve) => socket.once('connect', resolve).once('error', resolve));
    }),
  );
}

describe('directory.getReadiness without file descriptors', () => {
  test('is 503 until descriptors are free again', async () => {
    await expect.poll(async () => (await readReadiness()).status).toBe(200);
    await openSockets(descriptorLimit);
    const readWithoutDescriptors = async () => {
      // The server may close connections that it opened at its start, which frees their descriptors. It drops
      // new connections while it has no descriptors.
      await openSockets(16);
      return readReadiness();
    };
    await expect
      .poll(readWithoutDescriptors)
      .toMatchObject({ status: 503, body: { error: { code: 'not_ready' } } });
    for (const socket of sockets.splice(0)) socket.destroy();
    await expect.poll(async () => (await readReadiness()).status).toBe(200);
  });
});
