// A project on its way into service and through its life there, as an operator sees it: commands, exit codes, calls.
import { createHash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { townhall } from '../cli/townhall.ts';
import { startLoad } from '../fault-injection/rolling-load.ts';
import { makeCity, type CityWorld } from './city-world.ts';

const minutes = 60_000;
let city: CityWorld;
beforeAll(async () => {
  city = await makeCity();
}, 2 * minutes);
afterAll(async () => {
  await city?.close();
}, minutes);

/** Everything in a folder: the mode of each entry, and the hash of each file. */
async function treeOf(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const lines = entries.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    const { mode } = await stat(path);
    return `${path} ${mode} ${
      entry.isFile()
        ? createHash('sha256')
            .update(await readFile(path))
            .digest('hex')
        : ''
    }`;
  });
  return (await Promise.all(lines)).sort();
}

const saying = (message: string) => `import { defineService, type ActionCall } from 'townhall';
export const hello = defineService({
  id: 'hello',
  name: 'Hello',
  actions: {
    world: { method: 'GET', identities: [], run: () => ({ message: ${JSON.stringify(message)} }) },
    me: { method: 'POST', run: ({ user }: ActionCall) => ({ user_id: user?.userId }) },
  },
});
`;

describe('townhall init and deploy', { timeout: 4 * minutes }, () => {
  test('refuses a folder that has something in it', async () => {
    const { code, screen } = await city.run(['init', '../demo']);
    expect(code).toBe(1);
    expect(screen).toContain('is not empty');
  });

  test('a dry run prints the plan and changes nothing', async () => {
    const before = await treeOf(city.directory);
    const { code, screen } = await city.run(['deploy', '--dry-run']);
    expect(screen).toContain('0.1.0 to 0.1.1');
    expect(screen).toMatch(/database +will be made/);
    expect(code).toBe(0);
    expect(await treeOf(city.directory)).toEqual(before);
  });

  test('a look at what runs exits 1 while nothing does, and changes nothing', async () => {
    const before = await treeOf(city.directory);
    const { code, screen } = await city.run(['deploy', '--verify-only'], { PORT: '1' });
    expect(code).toBe(1);
    expect(screen).toContain('Nothing healthy serves');
    expect(await treeOf(city.directory)).toEqual(before);
  });

  test('the first deployment serves the project without an install, records the City and raises the version by one', async () => {
    const { code, screen } = await city.run(['deploy']);
    expect(screen).toMatch(/demo 0\.1\.1 serves at http:\/\/127\.0\.0\.1:\d+/);
    expect(code).toBe(0);
    expect(await city.version()).toBe('0.1.1');
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    const user = createGatewayClient({ baseUrl: await city.url(), token: await city.userToken() });
    await expect(user.call('hello', 'me', { greeting: 'Good morning' })).resolves.toMatchObject({
      message: expect.stringContaining('Good morning'),
    });
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

  test('keeps what it has to itself', async () => {
    expect((await stat(join(city.directory, '.townhall'))).mode & 0o777).toBe(0o700);
    for (const file of ['city.sock', 'city.log', 'supervisor.pid', 'city.json'])
      expect((await stat(join(city.directory, '.townhall', file))).mode & 0o077, file).toBe(0);
    expect(await city.read('.townhall/city.json')).not.toContain(city.env['TOWNHALL_MASTER_KEY']);
    expect(await city.read('.townhall/city.log')).not.toContain(city.env['ADMIN_PASSWORD']);
  });

  test('a look at what runs finds it healthy, and changes nothing', async () => {
    const { code, screen } = await city.run(['deploy', '--verify-only', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(screen)).toMatchObject({ ok: true, version: '0.1.1', url: await city.url() });
    expect(await city.version()).toBe('0.1.1');
  });

  test('commands about data mean that of the City, and leave no other database behind', async () => {
    const ledger = await city.run(['ledger', 'verify', '--json']);
    expect(ledger).toMatchObject({
      code: 0,
      screen: expect.stringContaining('This is about demo, which was deployed from this folder.'),
    });
    // The user of the test before has an account in it.
    expect(ledger.screen).toMatch(/"accounts":[1-9]/);
    expect(await city.run(['doctor'])).toMatchObject({
      code: 0,
      screen: expect.stringMatching(/ok +migrations +All \d+ are applied/),
    });
    expect(await readdir(city.directory)).not.toContain('data');
  });

  test('the next deployment replaces it at the same address under load: no request fails and no stream is cut', async () => {
    const before = await city.url();
    const token = await city.userToken();
    await city.write('src/index.ts', saying('second'));
    const load = startLoad({
      url: before,
      token,
      path: '/v1/hello/world',
      plainWorkers: 4,
      streamWorkers: 4,
    });
    const { code, screen } = await city.run(['deploy', '--json']);
    // Until the version before has let its last streams finish.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const tally = await load.stop();
    expect(code, screen).toBe(0);
    expect(await city.url()).toBe(before);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'second' } });
    expect(await city.version()).toBe('0.1.2');
    expect(tally.failures).toEqual([]);
    expect(tally.cutStreams).toBe(0);
    expect(tally.requests).toBeGreaterThan(50);
    expect(tally.streams).toBeGreaterThan(4);
  });

  test('a rollback brings the version before back and leaves the folder as it is', async () => {
    const { code, screen } = await city.run(['city', 'rollback', '--json']);
    expect(code, screen).toBe(0);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    expect((await city.get('/v1/cities/current')).body).toMatchObject({ version: '0.1.1' });
    expect(await city.version()).toBe('0.1.2');
    expect(await city.read('src/index.ts')).toBe(saying('second'));
  });

  test('a gateway that dies is started again, and callers wait for it', async () => {
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

  test('survives a stop, and starts again at its address', async () => {
    const url = await city.url();
    const stopped = await city.run(['deploy', '--stop', '--json']);
    expect(JSON.parse(stopped.screen)).toEqual({ stopped: true });
    await expect(fetch(`${url}/health`)).rejects.toThrow('fetch failed');
    expect((await city.run(['city', 'status'])).code).toBe(1);
    const started = await city.run(['city', 'start', '--json']);
    expect(JSON.parse(started.screen)).toMatchObject({ outcome: 'started', version: '0.1.1', url });
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    const status = await city.run(['city', 'status', '--json']);
    expect(JSON.parse(status.screen)).toMatchObject({
      running: true,
      version: '0.1.1',
      kept: ['0.1.1', '0.1.2'],
    });
  });

  test('a service manager runs it in the foreground and ends it with SIGTERM', async () => {
    expect((await city.run(['city', 'stop'])).code).toBe(0);
    const run = townhall(['city', 'run'], { cwd: city.directory, env: city.env });
    await run.waitFor(/"msg":"the City serves"/, minutes);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello, world.' } });
    expect(await city.run(['city', 'run'])).toMatchObject({
      code: 1,
      screen: expect.stringContaining('runs already'),
    });
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
    expect((await city.run(['city', 'status'])).code).toBe(1);
  });
});
