// A deployed project: its commands and their exit codes, and calls to it after a deployment, an upgrade, a
// rollback, a crash, a stop and a start.
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { townhall } from '../cli/townhall.ts';
import { startLoad } from '../fault-injection/rolling-load.ts';
import { readTree } from '../support/file-tree.ts';
import { isRunning } from '../support/processes.ts';
import { createCity, type CityWorld } from './city-world.ts';

const minutes = 60_000;
let city: CityWorld;
beforeAll(async () => {
  city = await createCity();
}, 2 * minutes);
afterAll(async () => {
  await city?.close();
}, minutes);

const serviceSource = (message: string) => `import { defineService, type ActionCall } from 'townhall';
export const hello = defineService({
  id: 'hello',
  name: 'Hello',
  actions: {
    world: { method: 'GET', identities: [], run: () => ({ message: ${JSON.stringify(message)} }) },
    me: { method: 'POST', run: ({ user }: ActionCall) => ({ user_id: user?.userId }) },
  },
});
`;

describe('a deployed project', { timeout: 4 * minutes }, () => {
  test('is not created in a folder that is not empty', async () => {
    const { code, screen } = await city.run(['init', '../demo']);
    expect(code).toBe(1);
    expect(screen).toContain('is not empty');
  });

  test('prints its plan and changes nothing in a dry run', async () => {
    const treeBefore = readTree(city.directory);
    const { code, screen } = await city.run(['deploy', '--dry-run']);
    expect(screen).toContain('0.1.0 to 0.1.1');
    expect(screen).toMatch(/database +will be created/);
    expect(code).toBe(0);
    expect(readTree(city.directory)).toEqual(treeBefore);
  });

  test('fails its verification before the first deployment', async () => {
    const treeBefore = readTree(city.directory);
    // Nothing listens on port 1.
    const { code, screen } = await city.run(['deploy', '--verify-only'], { PORT: '1' });
    expect(code).toBe(1);
    expect(screen).toContain('No healthy version serves');
    expect(readTree(city.directory)).toEqual(treeBefore);
  });

  test('serves its first deployment without an installation of packages', async () => {
    const { code, screen } = await city.run(['deploy']);
    expect(screen).toMatch(/demo 0\.1\.1 serves at http:\/\/127\.0\.0\.1:\d+/);
    expect(code).toBe(0);
    expect(await city.version()).toBe('0.1.1');
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
  });

  test('lets a signed-in user call an action', async () => {
    const user = createGatewayClient({ baseUrl: await city.url(), token: await city.userToken() });
    await expect(user.call('hello', 'me', { greeting: 'Good morning' })).resolves.toMatchObject({
      message: expect.stringContaining('Good morning'),
    });
  });

  test('names the deployed version and its services', async () => {
    const { id } = JSON.parse(await city.read('townhall.json')) as { id: string };
    expect((await city.get('/v1/cities/current')).body).toMatchObject({
      city_id: id,
      name: 'demo',
      version: '0.1.1',
      base_url: await city.url(),
    });
    expect((await city.get('/health')).body).toMatchObject({
      ok: true,
      services: expect.arrayContaining(['hello']),
    });
  });

  test('keeps its files readable by the owner only', async () => {
    expect((await stat(join(city.directory, '.townhall'))).mode & 0o777).toBe(0o700);
    for (const file of ['city.sock', 'city.log', 'supervisor.pid', 'city.json'])
      expect((await stat(join(city.directory, '.townhall', file))).mode & 0o077, file).toBe(0);
    expect(await city.read('.townhall/city.json')).not.toContain(city.env['TOWNHALL_MASTER_KEY']);
    expect(await city.read('.townhall/city.log')).not.toContain(city.env['ADMIN_PASSWORD']);
  });

  test('verifies a healthy deployment', async () => {
    const { code, screen } = await city.run(['deploy', '--verify-only', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(screen)).toMatchObject({ ok: true, version: '0.1.1', url: await city.url() });
    expect(await city.version()).toBe('0.1.1');
  });

  test('is the target of data commands in its folder', async () => {
    const ledger = await city.run(['ledger', 'verify', '--json']);
    expect(ledger).toMatchObject({
      code: 0,
      screen: expect.stringContaining('Using the data of the City demo, deployed from this folder.'),
    });
    // Some test above issued a token, so the ledger has an account of its user.
    expect(ledger.screen).toMatch(/"accounts":[1-9]/);
    expect(await city.run(['doctor'])).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/ok +migrations +All \d+ are applied/),
    });
    expect(await readdir(city.directory)).not.toContain('data');
  });

  test('is upgraded under load without a failed request', async () => {
    const urlBefore = await city.url();
    const pidBefore = (await city.supervisor.status())?.gatewayPid ?? 0;
    const token = await city.userToken();
    await city.write('src/index.ts', serviceSource('second'));
    const load = startLoad({
      url: urlBefore,
      token,
      path: '/v1/hello/world',
      plainWorkers: 4,
      streamWorkers: 4,
    });
    const { code, screen } = await city.run(['deploy', '--json']);
    // The process of the previous version exits after its last streams.
    await expect.poll(() => isRunning(pidBefore), { timeout: 60_000 }).toBe(false);
    const tally = await load.stop();
    expect(code, screen).toBe(0);
    expect(await city.url()).toBe(urlBefore);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'second' } });
    expect(await city.version()).toBe('0.1.2');
    expect(tally.failures).toEqual([]);
    expect(tally.cutStreams).toBe(0);
    expect(tally.requests).toBeGreaterThan(50);
    expect(tally.streams).toBeGreaterThan(4);
  });

  test('is rolled back to the previous version without a change of its files', async () => {
    const { code, screen } = await city.run(['city', 'rollback', '--json']);
    expect(code, screen).toBe(0);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    expect((await city.get('/v1/cities/current')).body).toMatchObject({ version: '0.1.1' });
    expect(await city.version()).toBe('0.1.2');
    expect(await city.read('src/index.ts')).toBe(serviceSource('second'));
  });

  test('restarts a killed gateway and answers calls made meanwhile', async () => {
    const pid = (await city.supervisor.status())?.gatewayPid ?? 0;
    process.kill(pid, 'SIGKILL');
    await expect
      .poll(async () => {
        const status = await city.supervisor.status();
        return status?.isServing === true && status.gatewayPid === pid;
      })
      .toBe(false);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    const status = await city.supervisor.status();
    expect(status?.gatewayPid).not.toBe(pid);
    expect(status?.restarts).toBeGreaterThan(0);
  });

  test('has the same address after a stop and a start', async () => {
    const url = await city.url();
    const result = await city.run(['deploy', '--stop', '--json']);
    expect(JSON.parse(result.screen)).toEqual({ stopped: true });
    await expect(fetch(`${url}/health`)).rejects.toThrow('fetch failed');
    expect((await city.run(['city', 'status'])).code).toBe(1);
    expect(await city.run(['city', 'start', '--timeout', '0'])).toMatchObject({
      code: 2,
      screen: expect.stringContaining('--timeout takes whole seconds'),
    });
    const startResult = await city.run(['city', 'start', '--json']);
    expect(JSON.parse(startResult.screen)).toMatchObject({ outcome: 'started', version: '0.1.1', url });
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    const status = await city.run(['city', 'status', '--json']);
    expect(JSON.parse(status.screen)).toMatchObject({
      running: true,
      version: '0.1.1',
      kept: ['0.1.1', '0.1.2'],
    });
  });

  test('runs in the foreground and exits on SIGTERM', async () => {
    expect((await city.run(['city', 'stop'])).code).toBe(0);
    const run = townhall(['city', 'run'], { cwd: city.directory, env: city.env });
    await run.waitFor(/"msg":"the City serves"/, minutes);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    const second = await city.run(['city', 'run']);
    expect(second).toMatchObject({ code: 1, screen: expect.stringContaining('is already running') });
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    expect((await city.run(['city', 'status'])).code).toBe(1);
  });
});
