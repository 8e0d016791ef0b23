// Two gateways on one PostgreSQL behind a small TCP proxy, restarted one after the other under
// load, several times over. Prints the tally and exits 1 when a request failed or a stream was cut.
//
//   node test/fault-injection/rolling-restart.ts [--rounds 2] [--plain 8] [--streams 8]
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { issueGatewayTokens } from '../support/gateway-tokens.ts';
import { readListeningUrl } from '../support/listening-url.ts';
import { startServer } from '../support/postgres-server.ts';
import { startLoad } from './rolling-load.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    rounds: { type: 'string', default: '2' },
    plain: { type: 'string', default: '8' },
    streams: { type: 'string', default: '8' },
  },
});
const program = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
// A new connection waits for a ready gateway for five seconds.
const connectAttempts = 100;
const connectPauseMs = 50;
const administrator = { admin_id: 'admin', password: 'a password for tests only' };

interface Backend {
  process: ChildProcess;
  url: string;
  isReady: boolean;
}

async function startGateway(databaseUrl: string): Promise<Backend> {
  const child = spawn(process.execPath, [program, 'gateway'], {
    env: {
      PATH: process.env['PATH'],
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'warn',
      DATABASE_URL: databaseUrl,
      TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'rolling').toString('base64'),
      STARTING_CREDITS: '1000000000',
      RATE_LIMIT_USER: 'off',
      RATE_LIMIT_GUEST: 'off',
      ADMIN_ID: administrator.admin_id,
      ADMIN_PASSWORD: administrator.password,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await readListeningUrl(child);
  return { process: child, url, isReady: false };
}

/**
 * A TCP proxy that polls the readiness of each gateway ten times a second, as a load balancer does,
 * and sends new connections to ready gateways.
 */
async function startProxy(backends: (Backend | undefined)[]): Promise<{ url: string; close(): void }> {
  const sockets = new Set<Socket>();
  let turn = 0;
  const checkReadiness = (backend: Backend): void => {
    const clientRequest = request(
      `${backend.url}/ready`,
      { headers: { connection: 'close' }, timeout: 1_000, agent: false },
      (response) => {
        backend.isReady = response.statusCode === 200;
        response.resume();
      },
    );
    clientRequest.on('error', () => (backend.isReady = false));
    clientRequest.on('timeout', () => clientRequest.destroy());
    clientRequest.end();
  };
  const readinessTimer = setInterval(
    () => backends.forEach((backend) => backend && checkReadiness(backend)),
    100,
  );
  const connectToReady = (client: Socket, attempts: number): void => {
    const readyBackends = backends.filter((backend) => backend?.isReady);
    const backend = readyBackends[turn++ % Math.max(1, readyBackends.length)];
    if (backend === undefined) {
      if (attempts === 0) client.destroy();
      else setTimeout(connectToReady, connectPauseMs, client, attempts - 1);
      return;
    }
    const { port, hostname } = new URL(backend.url);
    const upstream = connect(Number(port), hostname);
    let isConnected = false;
    upstream.once('connect', () => {
      isConnected = true;
      client.pipe(upstream).pipe(client);
    });
    upstream.once('error', () => {
      // The connection was refused, so no gateway has read the request: try another gateway.
      if (isConnected || attempts === 0) client.destroy();
      else connectToReady(client, attempts - 1);
    });
    client.once('error', () => upstream.destroy());
    client.once('close', () => upstream.destroy());
  };
  const server = createServer((client) => {
    sockets.add(client);
    client.once('close', () => sockets.delete(client));
    connectToReady(client, connectAttempts);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      clearInterval(readinessTimer);
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Stops the gateway unless it has ended. Returns its exit code, or the signal that ended it. */
async function stop({ process: child }: Backend): Promise<number | string | null> {
  if (child.exitCode === null && child.signalCode === null) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  return child.exitCode ?? child.signalCode;
}

async function waitForReady(backend: Backend): Promise<void> {
  const deadlineMs = performance.now() + 60_000;
  while (!backend.isReady) {
    if (performance.now() > deadlineMs) throw new Error('a gateway was not ready in time');
    await sleep(50);
  }
}

const database = await startServer();
const backends: (Backend | undefined)[] = [await startGateway(database.url)];
backends.push(await startGateway(database.url));
const proxy = await startProxy(backends);
let hasFailed = false;
try {
  for (const backend of backends) if (backend) await waitForReady(backend);
  const { userToken: token } = await issueGatewayTokens(backends[0]?.url ?? '', administrator);
  const load = startLoad({
    url: proxy.url,
    token,
    path: '/health',
    plainWorkers: Number(values.plain),
    streamWorkers: Number(values.streams),
  });
  // Let the load run for a while before the first restart.
  await sleep(1_000);
  let restarts = 0;
  for (let round = 0; round < Number(values.rounds); round += 1) {
    for (const index of [0, 1]) {
      const oldBackend = backends[index];
      if (!oldBackend) continue;
      const code = await stop(oldBackend);
      if (code !== 0) load.tally.failures.push(`a gateway exited with ${code}`);
      const next = await startGateway(database.url);
      backends[index] = next;
      await waitForReady(next);
      restarts += 1;
    }
  }
  const { requests, streams, failures, cutStreams, longestMs } = await load.stop();
  hasFailed = failures.length > 0 || cutStreams > 0;
  for (const failure of failures.slice(0, 10)) console.log(`  ${failure}`);
  console.log(
    JSON.stringify({
      restarts,
      requests,
      streams,
      failures: failures.length,
      cutStreams,
      longestPlainMs: Math.round(longestMs),
    }),
  );
} finally {
  proxy.close();
  for (const backend of backends) if (backend) await stop(backend);
  await database.stop();
}
process.exitCode = hasFailed ? 1 : 0;
