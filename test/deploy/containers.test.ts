// Builds and runs the rendered Dockerfile, compose files and systemd units with Debian's podman. Packing
// takes two minutes. PACKAGES=build/packages uses the tarballs of `npm run pack` instead.
import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createAgentClient } from '@townhall/agent';
import { createGatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { townhall } from '../cli/townhall.ts';
import { waitForEnd } from '../gateway/ai/media/media-world.ts';
import { freePort } from '../support/free-port.ts';
import { testAdministrator, testMasterKey } from '../support/gateway.ts';
import { startS3Server } from '../support/s3-server.ts';
import { until } from '../support/until.ts';
import { createBaseImage, missingForContainers, openPodman, type Podman } from './podman.ts';
import { issueUserToken } from './user-token.ts';

const minutes = 60_000;
const missing = missingForContainers();
if (missing !== null) console.warn(`SKIPPED: the rendered deployment files are not run (${missing}).`);

const baseImage = 'localhost/node-base:24';
const image = 'localhost/demo';
const administrator = { ADMIN_ID: testAdministrator.adminId, ADMIN_PASSWORD: testAdministrator.password };

let podman: Podman;
/** The project's folder. */
let project: string;
/** The folder of its rendered files. */
let deployment: string;
/** The build arguments of the Dockerfile. The tarballs of this checkout are in the project's folder. */
let buildSettings: { BASE_IMAGE: string; TOWNHALL_PACKAGE: string };

/** Makes the tarballs of this checkout, and returns their folder. */
async function pack(): Promise<string> {
  const existing = process.env['PACKAGES'];
  if (existing !== undefined) return existing;
  const output = join(podman.folder, 'packages');
  const words = [join(import.meta.dirname, '../../scripts/pack.ts'), '--output', output, '--no-check'];
  await promisify(execFile)(process.execPath, words, { timeout: 10 * minutes });
  return output;
}

/** Copies the tarballs of the server into the project's folder, and returns their paths there. */
async function packInto(folder: string): Promise<string[]> {
  const output = await pack();
  const tarballs = (await readdir(output)).filter((name) => /^townhall-(gateway-)?\d.*\.tgz$/.test(name));
  for (const name of tarballs) await cp(join(output, name), join(folder, name));
  return tarballs.map((name) => `./${name}`);
}

async function runTownhall(words: readonly string[], directory: string): Promise<void> {
  const run = townhall(words, { cwd: directory });
  if ((await run.ended) !== 0) throw new Error(run.screen());
}

async function makeProject(): Promise<void> {
  project = join(podman.folder, 'demo');
  deployment = join(project, 'deployment');
  await runTownhall(['init', 'demo'], podman.folder);
  await runTownhall(['deploy', '--render', 'deployment'], project);
  for (const path of ['.env', 'data/notes.txt', 'keys/master.key', 'src/notes.db']) {
    await mkdir(join(project, path, '..'), { recursive: true });
    await writeFile(join(project, path), 'a secret');
  }
}

const urlOf = (port: number): string => `http://127.0.0.1:${port}`;

async function answers(url: string): Promise<boolean> {
  return fetch(url).then(
    (response) => response.ok,
    () => false,
  );
}

/** Whether the command succeeds. */
function succeeds(command: Promise<unknown>): Promise<boolean> {
  return command.then(
    () => true,
    () => false,
  );
}

/** Waits for a server. If it does not answer, the error has the log of its container. */
async function waitForServer(url: string, container: string): Promise<void> {
  await until(() => answers(url), `${url} answers`, 2 * minutes).catch(async (error: unknown) => {
    const { stdout, stderr } = await podman.run('logs', container);
    throw new Error(`${String(error)}\n${stdout}${stderr}`);
  });
}

async function answerOf(gatewayUrl: string, token: string): Promise<unknown> {
  return createGatewayClient({ baseUrl: gatewayUrl, token }).ai.generateText({
    model: 'local/guide',
    prompt: 'How do I add a model provider?',
  });
}

/** The user, the effective and bounding capabilities, and the system call filter of the first process. */
async function confinementOf(container: string): Promise<string[]> {
  const { stdout } = await podman.run('top', container, 'user', 'capeff', 'capbnd', 'seccomp');
  return stdout.trim().split('\n')[1]?.split(/\s+/) ?? [];
}

/** Starts the image with the limits that the compose file and the chart also set. */
async function startContainer(name: string, options: readonly string[]): Promise<void> {
  const limits = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges'];
  await podman.run('run', '--detach', '--name', name, ...limits, ...options, image);
}

function environmentOptions(settings: Readonly<Record<string, string>>): string[] {
  return Object.entries(settings).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
}

describe.skipIf(missing !== null)('rendered deployment files', { timeout: 8 * minutes }, () => {
  beforeAll(async () => {
    podman = await openPodman();
    await makeProject();
    // One after the other, since both use all processors and packing has a time limit.
    const tarballs = await packInto(project);
    await createBaseImage(podman, baseImage);
    buildSettings = { BASE_IMAGE: baseImage, TOWNHALL_PACKAGE: tarballs.join(' ') };
    const buildArguments = Object.entries(buildSettings).flatMap(([name, value]) => [
      '--build-arg',
      `${name}=${value}`,
    ]);
    await podman.run(
      'build',
      '--file',
      join(deployment, 'Dockerfile'),
      '--tag',
      image,
      ...buildArguments,
      project,
    );
  }, 30 * minutes);
  afterAll(async () => {
    await podman?.close();
  }, 2 * minutes);

  describe('the image', () => {
    let port: number;
    /** Options that publish the port and mount the data volume of a container. */
    let mounts: string[];
    let token: string;
    beforeAll(async () => {
      port = await freePort();
      mounts = ['--publish', `127.0.0.1:${port}:43127`, '--volume', 'demo-data:/data'];
      await startContainer('first', [...mounts, ...environmentOptions(administrator)]);
      await waitForServer(`${urlOf(port)}/health`, 'first');
      token = await issueUserToken(urlOf(port));
    }, 4 * minutes);
    afterAll(async () => {
      await podman.run('rm', '--all', '--force', '--time', '5');
    });

    test('contains no data and no secret of the project', async () => {
      const { stdout } = await podman.run('exec', 'first', 'find', '/city', '-type', 'f');
      const files = stdout.trim().split('\n');
      expect(files).toContain('/city/src/index.ts');
      expect(files.filter((file) => /\.env|notes|master\.key/.test(file))).toEqual([]);
    });

    test('runs as another user than root, without capabilities, on a read-only file system', async () => {
      expect(await confinementOf('first')).toEqual(['node', 'none', 'none', 'filter']);
      await expect(podman.run('exec', 'first', 'touch', '/city/file')).rejects.toThrow(
        'Read-only file system',
      );
    });

    test('serves the project and calls a model', async () => {
      const hello = await fetch(`${urlOf(port)}/v1/hello/world`);
      expect(await hello.json()).toEqual({ message: 'Hello, world.' });
      expect(await answerOf(urlOf(port), token)).toMatchObject({ role: 'assistant' });
    });

    test('passes its own health check', async () => {
      const { stdout } = await podman.run('healthcheck', 'run', 'first');
      expect(stdout).not.toContain('unhealthy');
    });

    test('has no local login', async () => {
      const providers = await fetch(`${urlOf(port)}/v1/accounts/providers?bureau_id=local`);
      expect(await providers.json()).toMatchObject({ items: [] });
    });

    test('exits cleanly on SIGTERM and has its data in the next container', async () => {
      await podman.run('stop', '--time', '40', 'first');
      const { stdout } = await podman.run('inspect', 'first', '--format', '{{.State.ExitCode}}');
      expect(stdout.trim()).toBe('0');
      await podman.run('rm', 'first');
      await startContainer('second', mounts);
      await waitForServer(`${urlOf(port)}/ready`, 'second');
      expect(await answerOf(urlOf(port), token)).toMatchObject({ role: 'assistant' });
    });

    test('stores images in a bucket', async () => {
      const s3 = await startS3Server();
      const s3Port = await freePort();
      const settings = { ...administrator, ...s3.env(''), HOST: '127.0.0.1', PORT: String(s3Port) };
      try {
        // The bucket is at the loopback address of this machine.
        await startContainer('with-bucket', ['--network', 'host', ...environmentOptions(settings)]);
        const baseUrl = urlOf(s3Port);
        await waitForServer(`${baseUrl}/ready`, 'with-bucket');
        const user = createGatewayClient({ baseUrl, token: await issueUserToken(baseUrl) });
        const { job_id } = await user.ai.createImage({ model: 'local/shapes', prompt: 'A red circle' });
        expect(await waitForEnd(user, job_id)).toMatchObject({ status: 'succeeded' });
        expect(await s3.keys()).toHaveLength(1);
      } finally {
        await s3.close();
      }
    });
  });

  describe('the compose files', () => {
    const files = ['--file', 'compose.yaml', '--file', 'compose.agent.yaml'];
    let port: number;
    let agentPort: number;
    let env: Record<string, string>;
    beforeAll(async () => {
      port = await freePort();
      agentPort = await freePort();
      env = {
        ...buildSettings,
        ...administrator,
        IMAGE: image,
        PUBLISH: `127.0.0.1:${port}`,
        AGENT_PUBLISH: `127.0.0.1:${agentPort}`,
        AGENT_ALLOW_HOST: `127.0.0.1:${agentPort}`,
      };
    });

    test('start a gateway and an agent that calls it', async () => {
      await podman.compose(deployment, env, '--file', 'compose.yaml', 'up', '--build', '--detach');
      await waitForServer(`${urlOf(port)}/ready`, 'deployment_city_1');
      env['AGENT_GATEWAY_TOKEN'] = await issueUserToken(urlOf(port));
      await podman.compose(deployment, env, ...files, 'up', '--detach');
      await waitForServer(`${urlOf(agentPort)}/health`, 'deployment_agent_1');
      for (const service of ['city', 'agent']) {
        const container = `deployment_${service}_1`;
        expect(await confinementOf(container), service).toEqual(['node', 'none', 'none', 'filter']);
        await expect(podman.run('exec', container, 'touch', '/file')).rejects.toThrow(
          'Read-only file system',
        );
        await podman.run('healthcheck', 'run', container);
      }
      const { stdout } = await podman.run('exec', 'deployment_agent_1', 'cat', '/data/agent.token');
      const agent = createAgentClient({ baseUrl: urlOf(agentPort), token: stdout.trim() });
      expect(await agent.sessions.execute({ instructions: 'How do I stream an answer?' })).toMatchObject({
        success: true,
        message: { role: 'assistant' },
      });
    });

    test('keep the data of both when they are stopped and started', async () => {
      const { stdout: token } = await podman.run('exec', 'deployment_agent_1', 'cat', '/data/agent.token');
      await podman.compose(deployment, env, ...files, 'down');
      await podman.compose(deployment, env, ...files, 'up', '--detach');
      await waitForServer(`${urlOf(port)}/ready`, 'deployment_city_1');
      await waitForServer(`${urlOf(agentPort)}/health`, 'deployment_agent_1');
      expect(await answerOf(urlOf(port), env['AGENT_GATEWAY_TOKEN'] ?? '')).toMatchObject({
        role: 'assistant',
      });
      const agent = createAgentClient({ baseUrl: urlOf(agentPort), token: token.trim() });
      expect((await agent.sessions.list()).items).toHaveLength(1);
      await podman.compose(deployment, env, ...files, 'down');
    });

    test('contain commented options with which the agent can run commands', async () => {
      const text = await readFile(join(deployment, 'compose.agent.yaml'), 'utf8');
      const [, options = ''] = /^ +# (security_opt: .*)$/m.exec(text) ?? [];
      expect(options).not.toBe('');
      const textWithSandbox = text.replace(/^ {4}security_opt: .*$/m, `    ${options}`);
      await writeFile(join(deployment, 'compose.sandbox.yaml'), textWithSandbox);
      const sandboxFiles = ['--file', 'compose.yaml', '--file', 'compose.sandbox.yaml'];
      await podman.compose(deployment, env, ...sandboxFiles, 'up', '--detach');
      await waitForServer(`${urlOf(agentPort)}/health`, 'deployment_agent_1');
      expect(await confinementOf('deployment_agent_1')).toEqual(['node', 'none', 'none', 'disabled']);
      const words = ['townhall', 'agent', 'call', '--data-dir', '/data', 'shell', 'run'];
      const { stdout } = await podman.run('exec', 'deployment_agent_1', ...words, '{"command": "id --user"}');
      expect(JSON.parse(stdout)).toMatchObject({ exitCode: 0, output: '1000\n' });
      await podman.compose(deployment, env, ...sandboxFiles, 'down', '--volumes');
    });
  });

  // The database is Debian's PostgreSQL, in an image with the settings of the official image.
  describe('the compose file with PostgreSQL', () => {
    const databaseImage = 'localhost/postgres';
    let directory: string;
    beforeAll(async () => {
      const context = join(podman.folder, 'postgres');
      await mkdir(context);
      await writeFile(join(context, 'Dockerfile'), postgresDockerfile);
      await writeFile(join(context, 'entry.sh'), postgresEntry, { mode: 0o755 });
      await podman.run('build', '--tag', databaseImage, context);
      const path = join(project, 'townhall.json');
      const declaration = JSON.parse(await readFile(path, 'utf8')) as { deployment: object };
      const resources = { database: { type: 'postgres', binding: 'db' } };
      await writeFile(path, JSON.stringify({ ...declaration, deployment: { target: 'local', resources } }));
      directory = join(project, 'on-postgres');
      await runTownhall(['deploy', '--render', directory], project);
    }, 10 * minutes);

    test('starts a gateway that uses its database', async () => {
      const port = await freePort();
      const env = {
        ...buildSettings,
        ...administrator,
        IMAGE: 'localhost/demo-on-postgres',
        POSTGRES_IMAGE: databaseImage,
        POSTGRES_PASSWORD: 'a-password-for-tests',
        TOWNHALL_MASTER_KEY: testMasterKey,
        PUBLISH: `127.0.0.1:${port}`,
      };
      await podman.compose(directory, env, 'up', '--build', '--detach');
      await waitForServer(`${urlOf(port)}/ready`, 'on-postgres_city_1');
      expect(await answerOf(urlOf(port), await issueUserToken(urlOf(port)))).toMatchObject({
        role: 'assistant',
      });
      await podman.run('healthcheck', 'run', 'on-postgres_database_1');
      const tables = ['psql', '--username', 'townhall', 'demo-db', '--command', '\\dt *.*'];
      expect((await podman.run('exec', 'on-postgres_database_1', ...tables)).stdout).toContain('accounts');
      await podman.compose(directory, env, 'down', '--volumes');
    });
  });

  // systemd is the first process of a container.
  describe('the systemd units', () => {
    const machine = 'machine';
    const exec = async (...words: string[]): Promise<string> =>
      (await podman.run('exec', machine, ...words)).stdout.trim();
    const evaluate = async (script: string): Promise<string> =>
      exec('node', '--input-type=module', '--eval', script);
    const waitFor = (url: string): Promise<number> =>
      until(() => succeeds(evaluate(`await fetch('${url}')`)), `${url} answers`, 2 * minutes);
    const gateway = 'http://127.0.0.1:43127';
    const cityOf = async (): Promise<unknown> =>
      JSON.parse(await evaluate(`console.log(await (await fetch('${gateway}/v1/cities/current')).text())`));

    beforeAll(async () => {
      const context = join(podman.folder, 'systemd');
      await mkdir(context);
      await writeFile(join(context, 'Dockerfile'), systemdDockerfile);
      await podman.run('build', '--tag', 'localhost/systemd', context);
      const options = ['--detach', '--name', machine, '--systemd', 'always', '--privileged'];
      await podman.run('run', ...options, 'localhost/systemd');
      await until(() => succeeds(exec('systemctl', 'is-system-running')), 'systemd runs', 2 * minutes);
      await exec(
        'sh',
        '-c',
        'cd /srv && townhall init notes && cd notes && townhall deploy --render deployment',
      );
    }, 10 * minutes);

    test('the commands in the unit start the gateway', async () => {
      const unit = await exec('cat', '/srv/notes/deployment/notes.service');
      const commands = [...unit.matchAll(/^# {3}(.*)$/gm)].map(([, command = '']) => command);
      // They create the user, give it the project, deploy, stop, copy the unit and start it.
      expect(commands).toHaveLength(6);
      for (const command of commands) await exec('sh', '-c', command);
      await waitFor(`${gateway}/health`);
      expect(await cityOf()).toMatchObject({ name: 'notes', version: '0.1.1' });
    });

    test('a deployment upgrades the City in the process of the unit', async () => {
      const pid = await exec('systemctl', 'show', '--property', 'MainPID', '--value', 'notes');
      await exec('runuser', '--user', 'townhall', '--', 'townhall', 'deploy', '--project', '/srv/notes');
      expect(await cityOf()).toMatchObject({ version: '0.1.2' });
      expect(await exec('systemctl', 'show', '--property', 'MainPID', '--value', 'notes')).toBe(pid);
    });

    test('the unit stops cleanly and serves the same version again', async () => {
      await exec('systemctl', 'stop', 'notes');
      const results = await exec('systemctl', 'show', '--property', 'Result,ExecMainStatus', 'notes');
      expect(results.split('\n').sort()).toEqual(['ExecMainStatus=0', 'Result=success']);
      await exec('systemctl', 'start', 'notes');
      await waitFor(`${gateway}/health`);
      expect(await cityOf()).toMatchObject({ version: '0.1.2' });
    });

    test('the unit of the agent runs commands in its sandbox', async () => {
      const token = await evaluate(localLogin(gateway));
      await exec(
        'sh',
        '-c',
        'umask 077; mkdir -p /etc/townhall; ' +
          `echo AGENT_GATEWAY_TOKEN=${token} > /etc/townhall/notes-agent.env`,
      );
      await exec('cp', '/srv/notes/deployment/notes-agent.service', '/etc/systemd/system/');
      await exec('systemctl', 'daemon-reload');
      await exec('systemctl', 'start', 'notes-agent');
      await waitFor('http://127.0.0.1:5314/health');
      const words = ['agent', 'call', '--data-dir', '/var/lib/notes-agent', 'shell', 'run'];
      const answer = JSON.parse(await exec('townhall', ...words, '{"command": "id --user"}')) as {
        output: string;
      };
      expect(answer).toMatchObject({ exitCode: 0 });
      // The ids of dynamic users start here.
      expect(Number(answer.output)).toBeGreaterThanOrEqual(61_184);
    });

    test('the agent of the unit calls the gateway', async () => {
      const token = await exec('cat', '/var/lib/notes-agent/agent.token');
      const answer = JSON.parse(await evaluate(execution('http://127.0.0.1:5314', token))) as unknown;
      expect(answer).toMatchObject({ success: true, message: { role: 'assistant' } });
    });
  });
});

const postgresDockerfile = `FROM ${baseImage}
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql
ENV PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
COPY entry.sh /
USER postgres
STOPSIGNAL SIGINT
CMD ["/entry.sh"]
`;

const postgresEntry = `#!/bin/sh
set -e
if [ ! -d "$PGDATA" ]; then
  echo "$POSTGRES_PASSWORD" > /tmp/password
  initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  pg_ctl --wait --options "-c listen_addresses=''" start
  createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl --wait stop
fi
exec postgres -c 'listen_addresses=*'
`;

// The image has settings for a container. An empty setting counts as absent, so the defaults apply again.
const systemdDockerfile = `FROM ${image}
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends systemd dbus
ENV HOST= PORT= DATABASE_PATH= STORAGE_PATH= JOURNAL_PATH= LOCAL_LOGIN=
STOPSIGNAL SIGRTMIN+3
HEALTHCHECK NONE
CMD ["/lib/systemd/systemd"]
`;

/** A program that prints a user token. It must run on the machine of the gateway, where local login works. */
function localLogin(gateway: string): string {
  return `const { login_id } = await (await fetch('${gateway}/v1/accounts/login/start', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ provider: 'local', bureau_id: 'local' }),
  })).json();
  const login = await (await fetch('${gateway}/v1/accounts/login/result?login_id=' + login_id)).json();
  console.log(login.user_token);`;
}

/** A program that prints the answer of an agent to a question. */
function execution(agent: string, token: string): string {
  return `const answer = await fetch('${agent}/api/execute', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ${token}' },
    body: JSON.stringify({ instructions: 'How do I stream an answer?' }),
  });
  console.log(await answer.text());`;
}
