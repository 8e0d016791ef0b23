// `townhall gateway --workers 2`: two processes behind one port on one PostgreSQL.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request, type IncomingHttpHeaders } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { divideConnections } from '../../src/cli/servers/workers/connections.ts';
import { mergeMetrics } from '../../src/cli/servers/workers/merge-metrics.ts';
import { type DatabasePlace, makeDatabase } from '../support/databases.ts';
import { freePort } from '../support/free-port.ts';
import { testAdministrator, testMasterKey } from '../support/gateway.ts';
import { type ScriptedProvider, startProvider } from '../support/provider.ts';
import { type Run, townhall } from './townhall.ts';

let folder: string;
let place: DatabasePlace;
let provider: ScriptedProvider;
let server: Run;
let url: string;
let metricsUrl: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-workers-'));
  place = await makeDatabase();
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(
      { plain: 'ok', failing: 'status?code=500' },
      { model: { rates: { input: 0, output: 5_000_000 } } },
    ),
  );
  const metricsPort = await freePort();
  metricsUrl = `http://127.0.0.1:${metricsPort}/metrics`;
  server = startServer({
    METRICS_PORT: String(metricsPort),
    RATE_LIMIT_USER: 'off',
    MODELS_FILE: modelsFile,
    ACME_API_KEY: 'a key of the provider',
  });
  [, url = ''] = await server.waitFor(/"url":"([^"]+)","msg":"listening"/);
});

afterAll(async () => {
  server?.process.kill('SIGKILL');
  await provider?.close();
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

function startServer(env: Record<string, string>): Run {
  return townhall(['gateway', '--workers', '2'], {
    cwd: folder,
    env: {
      HOST: '127.0.0.1',
      PORT: '0',
      DATABASE_URL: 'url' in place.options ? place.options.url : '',
      TOWNHALL_MASTER_KEY: testMasterKey,
      ADMIN_ID: testAdministrator.adminId,
      ADMIN_PASSWORD: testAdministrator.password,
      ...env,
    },
  });
}

/** The ids of the processes whose parent is the server. */
async function readWorkerIds({ pid } = server.process): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return children.trim().split(/\s+/).filter(Boolean).map(Number);
}

async function firstWorkerId(): Promise<number> {
  const [id] = await readWorkerIds();
  // process.kill(0, …) would signal the process group of the test.
  if (id === undefined) throw new Error('The server has no workers.');
  return id;
}

/** Stops a process with SIGSTOP during the work. */
async function withoutProcess(id: number, work: () => Promise<void>): Promise<void> {
  if (id === 0) throw new Error('The server has fewer than two workers.');
  process.kill(id, 'SIGSTOP');
  try {
    await work();
  } finally {
    process.kill(id, 'SIGCONT');
  }
}

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
}

/** Sends a request over a new connection. `fetch` could reuse one to either process. */
function send(path: string, { token, body }: { token?: string; body?: object } = {}): Promise<Answer> {
  const headers = {
    'content-type': 'application/json',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const options = { method: body === undefined ? 'GET' : 'POST', headers, agent: false as const };
  return new Promise((resolve, reject) => {
    request(`${url}${path}`, options, (response) => {
      response.resume();
      response.once('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers }));
      response.once('error', reject);
    })
      .once('error', reject)
      .end(body === undefined ? undefined : JSON.stringify(body));
  });
}

async function isServed(): Promise<boolean> {
  const answers = await Promise.all(Array.from({ length: 8 }, () => send('/ready')));
  return answers.every(({ status }) => status === 200);
}

async function loginAdmin() {
  const { session_token: session } = await createGatewayClient({ baseUrl: url }).admin.login({
    admin_id: testAdministrator.adminId,
    password: testAdministrator.password,
  });
  return createGatewayClient({ baseUrl: url, token: session });
}

/** Creates a user with credits; returns its token. */
async function makeCustomer(credits: number): Promise<string> {
  const admin = await loginAdmin();
  const bureau = await admin.bureaus.createBureau({ server_url: 'https://shop.example' });
  const user = await admin.accounts.issueToken({ bureau_id: bureau.bureau_id, external_id: 'customer' });
  await admin.credits.grantCredits({ user_id: user.user_id, credits, reason: 'a test' });
  return user.user_token;
}

describe('townhall gateway --workers 2', () => {
  test('serves with two processes', async () => {
    expect(await readWorkerIds()).toHaveLength(2);
    await expect.poll(isServed).toBe(true);
  });

  test('lets exactly 25 of 200 parallel calls spend 500 credits', async () => {
    const token = await makeCustomer(500);
    // A call costs 20 credits: four output tokens at five credits each, which is also the most that it may
    // cost. Each call has its own connection, so that both workers get calls.
    const callOnce = async () =>
      (
        await send('/v1/ai/text', {
          token,
          body: { model: 'acme/plain', prompt: 'hello', max_output_tokens: 4 },
        })
      ).status;
    const statuses = await Promise.all(Array.from({ length: 200 }, callOnce));
    expect(statuses.filter((status) => status === 200)).toHaveLength(25);
    expect(statuses.filter((status) => status === 402)).toHaveLength(175);
    const client = createGatewayClient({ baseUrl: url, token });
    expect(await client.credits.getBalance()).toMatchObject({ posted: 0, held: 0, available: 0 });
    const { user_id: userId } = await client.credits.getBalance();
    const admin = await loginAdmin();
    await admin.credits.grantCredits({ user_id: userId, credits: 20, reason: 'a test' });
    expect(await callOnce()).toBe(200);
  });

  test('opens a circuit breaker in a process that saw no failure', async () => {
    const [failing = 0, other = 0] = await readWorkerIds();
    // A customer for each process: credits that one of them has set aside are not free in the other.
    const [tokenOfFailing, tokenOfOther] = [await makeCustomer(500), await makeCustomer(500)];
    const callFailing = async (token: string) => {
      const body = { model: 'acme/failing', prompt: 'hello', max_output_tokens: 4 };
      const { headers } = await send('/v1/ai/text', { token, body });
      return String(headers['x-townhall-attempts']);
    };
    // A stopped process accepts no connections, so the running one gets every call.
    await withoutProcess(other, async () => {
      await expect.poll(() => callFailing(tokenOfFailing)).toContain('breaker_open');
    });
    await withoutProcess(failing, async () => {
      // Once the process answers again, it has read the message that waited for it.
      await expect.poll(isServed).toBe(true);
      const callsBefore = provider.calls.length;
      expect(await callFailing(tokenOfOther)).toContain('breaker_open');
      expect(provider.calls).toHaveLength(callsBefore);
    });
  });

  test('serves the metrics of both processes on one port', async () => {
    const text = await (await fetch(metricsUrl)).text();
    expect(text).toMatch(/process_cpu_seconds_total\{worker="0"\} /);
    expect(text).toMatch(/process_cpu_seconds_total\{worker="1"\} /);
    expect(text.match(/# TYPE process_cpu_seconds_total counter/g)).toHaveLength(1);
  });

  test('replaces a process that was killed', async () => {
    const first = await firstWorkerId();
    process.kill(first, 'SIGKILL');
    await expect
      .poll(async () => {
        const ids = await readWorkerIds();
        return ids.length === 2 && !ids.includes(first);
      })
      .toBe(true);
    await server.waitFor(/"reason":"SIGKILL".*a worker has exited/);
    await expect.poll(isServed).toBe(true);
  });

  test('leaves no process after SIGTERM during a restart', async () => {
    const first = await firstWorkerId();
    process.kill(first, 'SIGKILL');
    await expect.poll(async () => (await readWorkerIds()).filter((id) => id !== first)).toHaveLength(2);
    const ids = await readWorkerIds();
    const startedMs = performance.now();
    server.process.kill('SIGTERM');
    expect(await server.ended).toBe(0);
    for (const id of ids) expect(() => process.kill(id, 0)).toThrow('ESRCH');
    // A worker that ignores the stop is killed after 40 seconds.
    expect(performance.now() - startedMs).toBeLessThan(30_000);
  });

  test('is refused with the embedded database', async () => {
    const run = townhall(['gateway', '--workers', '2'], { cwd: folder, env: { PORT: '0' } });
    expect(await run.ended).toBe(2);
    expect(run.screen()).toContain('WORKERS above 1 needs PostgreSQL: set DATABASE_URL.');
  });
});

// Of 100 connections, 80 are for workers. Each worker has three connections besides its pool, and five more
// for a project.
describe('the connections of workers', () => {
  const options = { workers: 8, maxConnections: 100, hasProject: false };

  test('stay below 80 % of the limit of the database', () => {
    expect(divideConnections(options)).toBe(80 / 8 - 3);
  });

  test('leave room for those of a project', () => {
    expect(divideConnections({ ...options, hasProject: true })).toBe(80 / 8 - 3 - 5);
  });

  test('are ten per worker at most', () => {
    expect(divideConnections({ ...options, workers: 2 })).toBe(10);
  });

  test('are refused when fewer than two per worker remain', () => {
    // 80 / 20 - 3 leaves one.
    expect(() => divideConnections({ ...options, workers: 20 })).toThrow(
      'WORKERS 20 is too many for a database with 100 connections',
    );
  });
});

test('stops the workers when another program takes the metrics port', { timeout: 120_000 }, async () => {
  const port = await freePort();
  const run = startServer({ METRICS_PORT: String(port) });
  // The port is checked before the first worker starts, and opened after the last one listens.
  await expect.poll(() => readWorkerIds(run.process), { timeout: 60_000 }).not.toEqual([]);
  const program = createServer().listen(port, '127.0.0.1');
  onTestFinished(() => void program.close());
  expect(await run.ended).toBe(1);
  expect(run.screen()).toContain(`The port ${port} is taken`);
  expect(run.screen()).not.toContain('did not exit');
});

describe('merged metrics', () => {
  test('are grouped by name with a label for each process', () => {
    const text = '# HELP a Help.\n# TYPE a counter\na 1\n# HELP b Help.\n# TYPE b gauge\nb{kind="x"} 2\n';
    expect(
      mergeMetrics([
        { worker: 0, text },
        { worker: 1, text },
      ]),
    ).toBe(
      [
        '# HELP a Help.\n# TYPE a counter\na{worker="0"} 1\na{worker="1"} 1\n',
        '# HELP b Help.\n# TYPE b gauge\nb{worker="0",kind="x"} 2\nb{worker="1",kind="x"} 2\n',
      ].join('\n'),
    );
  });
});
