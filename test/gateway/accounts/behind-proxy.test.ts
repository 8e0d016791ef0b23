// The local login behind a real nginx, as an operator could put one in front of the local edition.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { freePort } from '../../support/free-port.ts';
import { startGateway, type GatewayWorld } from '../../support/gateway.ts';
import { until } from '../../support/until.ts';

const hasNginx = spawnSync('nginx', ['-v']).status === 0;
if (!hasNginx) console.warn('SKIPPED: the tests behind a proxy need nginx, which is not installed.');

const startLogin = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ provider: 'local', bureau_id: 'local' }),
};

async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** An nginx in front of the server; `configLines` go into its location block. */
async function startProxy(
  target: string,
  configLines: string,
): Promise<{ url: string; close(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-nginx-'));
  const port = await freePort();
  const temporaryPaths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join(' ');
  await writeFile(
    join(folder, 'nginx.conf'),
    `daemon off; pid ${folder}/pid; error_log ${folder}/error.log;
    events {}
    http {
      access_log off; ${temporaryPaths}
      server {
        listen 127.0.0.1:${port};
        location / { proxy_pass ${target}; ${configLines} }
      }
    }`,
  );
  const proxy = spawn('nginx', ['-c', join(folder, 'nginx.conf'), '-p', folder], { stdio: 'ignore' });
  const exit = once(proxy, 'close');
  await until(() => isOpen(port), 'nginx listens');
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
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
    worlds.push(world);
    const proxy = await startProxy(world.url, configLines);
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
      expect(response.status, url).toBe(404);
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
    ['sends X-Forwarded-For', 'proxy_set_header X-Forwarded-For $remote_addr;'],
  ])('does not exist for a proxy that %s', async (_name, configLines) => {
    const { world, proxy } = await start({}, configLines);
    expect((await fetch(`${proxy.url}/v1/accounts/login/start`, startLogin)).status).toBe(404);
    expect((await fetch(`${world.url}/v1/accounts/login/start`, startLogin)).status).toBe(200);
  });
});

test('a stored public address turns the local login off without a restart', async () => {
  const world = await startGateway({ withAdmin: true });
  try {
    const loginStatus = async () => (await fetch(`${world.url}/v1/accounts/login/start`, startLogin)).status;
    expect(await loginStatus()).toBe(200);
    await world.admin.env.upsertVariable({
      key: 'TOWNHALL_CITY_BASE_URL',
      value: 'https://townhall.example',
    });
    await expect.poll(loginStatus).toBe(404);
  } finally {
    await world.close();
  }
});
