// The local login behind a real nginx, as an operator could put one in front of the local edition.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';
import type { GatewayWorld } from '../../support/gateway.ts';

const hasNginx = spawnSync('nginx', ['-v']).status === 0;
if (!hasNginx) console.warn('SKIPPED: the tests behind a proxy need nginx, which is not here.');

const startLogin = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ provider: 'local', bureau_id: 'local' }),
};

async function untilOpen(port: number): Promise<void> {
  for (let attempt = 0; attempt < 1_200; attempt += 1) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
      socket.once('close', () => undefined).once('connect', () => socket.destroy());
    });
    if (isOpen) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error('nginx did not start');
}

/** An nginx in front of the server; `lines` go into its location block. */
async function startProxy(
  target: string,
  configLines: string,
): Promise<{ url: string; close(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-nginx-'));
  const port = await freePort();
  const places = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join(' ');
  await writeFile(
    join(folder, 'nginx.conf'),
    `daemon off; pid ${folder}/pid; error_log ${folder}/error.log; events {} http { access_log off; ${places} server { listen 127.0.0.1:${port}; location / { proxy_pass ${target}; ${configLines} } } }`,
  );
  const proxy = spawn('nginx', ['-c', join(folder, 'nginx.conf'), '-p', folder], { stdio: 'ignore' });
  await untilOpen(port);
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      const exit = new Promise((resolve) => proxy.once('close', resolve));
      proxy.kill('SIGTERM');
      await exit;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

describe.skipIf(!hasNginx)('the local login behind nginx', () => {
  const worlds: GatewayWorld[] = [];
  const proxies: { close(): Promise<void> }[] = [];
  const start = async (env: Record<string, string>, configLines: string) => {
    const world = await startGateway({ env });
    const proxy = await startProxy(world.url, configLines);
    worlds.push(world);
    proxies.push(proxy);
    return { world, proxy };
  };
  afterAll(async () => {
    for (const entry of [...proxies, ...worlds]) await entry.close();
  });

  const outsideHost = 'proxy_set_header Host townhall.example;';

  test.each([
    ['TOWNHALL_CITY_BASE_URL', { TOWNHALL_CITY_BASE_URL: 'https://townhall.example' }],
    ['TRUSTED_PROXIES', { TRUSTED_PROXIES: '127.0.0.1' }],
  ])('does not exist once %s is set', async (_name, env) => {
    const { world, proxy } = await start(env, outsideHost);
    for (const url of [proxy.url, world.url]) {
      const response = await fetch(`${url}/v1/accounts/login/start`, startLogin);
      expect([url === proxy.url, response.status]).toEqual([url === proxy.url, 404]);
      expect(await (await fetch(`${url}/v1/accounts/providers?bureau_id=local`)).json()).toMatchObject({
        items: [],
      });
    }
    expect(world.gateway.hasLocalLogin()).toBe(false);
    expect(world.logLines.join('')).not.toMatch(/local login is open/);
  });

  test('is announced as open at the start when neither is set', async () => {
    const { world } = await start({}, outsideHost);
    expect(world.logLines.join('')).toMatch(
      /The local login is open: .*TOWNHALL_CITY_BASE_URL or TRUSTED_PROXIES/,
    );
  });

  test.each([
    ['forwards the outside Host', outsideHost],
    ['names its client', 'proxy_set_header X-Forwarded-For $remote_addr;'],
  ])('does not exist for a proxy that %s', async (_name, configLines) => {
    const { world, proxy } = await start({}, configLines);
    expect((await fetch(`${proxy.url}/v1/accounts/login/start`, startLogin)).status).toBe(404);
    expect((await fetch(`${world.url}/v1/accounts/login/start`, startLogin)).status).toBe(200);
  });

  describe('with an address that is stored while it serves', () => {
    let world: GatewayWorld;
    beforeAll(async () => {
      world = await startGateway({ withAdmin: true });
      worlds.push(world);
    });

    test('disappears without a restart', async () => {
      expect((await fetch(`${world.url}/v1/accounts/login/start`, startLogin)).status).toBe(200);
      await world.admin.env.upsertVariable({
        key: 'TOWNHALL_CITY_BASE_URL',
        value: 'https://townhall.example',
      });
      await expect
        .poll(async () => (await fetch(`${world.url}/v1/accounts/login/start`, startLogin)).status)
        .toBe(404);
    });
  });
});
