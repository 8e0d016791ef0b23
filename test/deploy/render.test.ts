// The texts of the rendered files for Docker, Compose, Helm and systemd. `containers.test.ts` runs them, and
// `test/oracles/chart.test.ts` renders the chart with Helm.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, matchesGlob } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isRendered, parseDeclaration, renderProject } from '../../src/deploy/index.ts';

const run = promisify(execFile);
const hasSystemd = existsSync('/usr/bin/systemd-analyze');
if (!hasSystemd) console.warn('SKIPPED: the units are not verified (not installed: systemd-analyze).');
const units = ['notes.service', 'notes-agent.service'];
const declarationWith = (resources: object, name = 'notes') =>
  parseDeclaration(
    JSON.stringify({
      schema: 1,
      type: 'city',
      id: 'cty_x',
      name,
      deployment: { target: 'local', port: 8080, base_url: 'https://notes.example.test', resources },
    }),
  );

interface RenderOptions {
  directory?: string;
  user?: string;
  name?: string;
}

const renderWith = (
  resources: object,
  { directory = '/srv/notes', user = 'root', name = 'notes' }: RenderOptions = {},
) =>
  renderProject({
    declaration: declarationWith(resources, name),
    version: '1.2.3',
    directory,
    folder: join(directory, 'deployment'),
    user,
    command: [process.execPath, '/opt/town hall/main.js'],
  });

/** The instructions of a Dockerfile or the settings of a unit, without comments. */
const linesOf = (text = ''): string[] =>
  text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));

interface Compose {
  services: Record<
    string,
    {
      build?: { context: string; dockerfile: string };
      ports?: string[];
      environment?: Record<string, string | null>;
      stop_grace_period?: string;
      depends_on?: object;
      image?: string;
    }
  >;
  volumes: object;
}

test('every rendered file is recognized as rendered', () => {
  const files = Object.entries(renderWith({}));
  expect(files.length).toBeGreaterThan(10);
  for (const [name, text] of files) expect(isRendered(text), name).toBe(true);
});

describe('the rendered Dockerfile', () => {
  test('runs known instructions as an unprivileged user', () => {
    const lines = linesOf(renderWith({})['Dockerfile']);
    const instruction = /^(ARG|FROM|RUN|WORKDIR|COPY|USER|ENV|EXPOSE|VOLUME|STOPSIGNAL|HEALTHCHECK|CMD) \S/;
    expect(lines.filter((line) => !instruction.test(line))).toEqual([]);
    expect(lines.slice(0, 2)).toEqual([
      expect.stringMatching(/^ARG BASE_IMAGE=node:24/),
      'FROM ${BASE_IMAGE}',
    ]);
    expect(lines).toContain('USER node');
    expect(lines).toContain('STOPSIGNAL SIGTERM');
    const command = lines.find((line) => line.startsWith('CMD '))?.slice(4) ?? '';
    expect(JSON.parse(command)).toEqual(['townhall', 'gateway', '--project', '/city']);
    const health = lines.find((line) => line.startsWith('HEALTHCHECK '))?.replace(/^.*? CMD /, '') ?? '';
    expect(JSON.parse(health)).toEqual(['node', '-e', expect.stringContaining('/ready')]);
  });

  test('installs the packages and has volumes for declared storage', () => {
    const files = renderWith({
      storage: {
        type: 'directory',
        binding: 'files',
        name: 'notes-files',
        public_url_prefix: 'https://files.notes.example.test',
      },
    });
    const lines = linesOf(files['Dockerfile']);
    expect(lines.findIndex((line) => line.includes('npm ci --omit=dev'))).toBeGreaterThan(
      lines.findIndex((line) => line.startsWith('COPY ')),
    );
    expect(lines).toContain('VOLUME /data /city/.townhall/storage');
    expect(lines).toContain(
      'RUN mkdir -p /data /city/.townhall/storage && chown node:node /data /city/.townhall/storage',
    );
    expect(parse(files['compose.yaml'] ?? '')).toMatchObject({
      services: { city: { volumes: ['data:/data', 'storage:/city/.townhall/storage'] } },
      volumes: { data: {}, storage: {} },
    });
  });

  /** Docker excludes a path when a pattern matches the path or a folder above it. */
  function isIgnored(path: string): boolean {
    const patterns = linesOf(renderWith({})['Dockerfile.dockerignore']);
    return path
      .split('/')
      .some((_part, index, parts) =>
        patterns.some((pattern) => matchesGlob(parts.slice(0, index + 1).join('/'), pattern)),
      );
  }

  test('excludes data and secrets from the image', () => {
    const secrets = [
      'data/townhall.db/master.key',
      'data/local.token',
      '.env',
      '.env.production',
      'config/.env.local',
      '.townhall/environment',
      'deploy/tls.pem',
      'keys/master.key',
      'agent.token',
      '.npmrc',
      'id_ed25519',
      'notes.backup',
      'local.sqlite3',
      'gcp/service-account.json',
      'packages/a/node_modules/b/index.js',
    ];
    expect(secrets.filter((path) => !isIgnored(path))).toEqual([]);
  });

  test('copies the sources of the project', () => {
    const sources = [
      'package.json',
      'package-lock.json',
      'townhall.json',
      'src/index.ts',
      'src/data/notes.ts',
      'src/secrets.ts',
      'src/environment/index.ts',
      'migrations/0001_notes.sql',
    ];
    expect(sources.filter(isIgnored)).toEqual([]);
  });

  test('has no local login', () => {
    expect(renderWith({})['Dockerfile']).toMatch(/^ENV .*\bLOCAL_LOGIN=false\b/m);
  });
});

describe('the rendered compose file', () => {
  test('builds the image and gives the City 40 seconds to stop', () => {
    const { services, volumes } = parse(renderWith({})['compose.yaml'] ?? '') as Compose;
    expect(services['city']).toMatchObject({
      build: { context: '..', dockerfile: 'deployment/Dockerfile' },
      ports: ['${PUBLISH:-127.0.0.1:8080}:8080'],
      stop_grace_period: '40s',
      environment: {
        TOWNHALL_CITY_BASE_URL: '${TOWNHALL_CITY_BASE_URL:-https://notes.example.test}',
        ADMIN_PASSWORD: null,
      },
    });
    expect(volumes).toEqual({ data: {} });
  });

  test.each([
    ['compose.yaml', 'city'],
    ['compose.agent.yaml', 'agent'],
  ])('%s makes its container read-only and unprivileged', (file, service) => {
    const { services } = parse(renderWith({})[file] ?? '') as Compose;
    expect(services[service]).toMatchObject({
      read_only: true,
      tmpfs: ['/tmp'],
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
    });
  });

  test('requires a token of the gateway for the agent', () => {
    const { services } = parse(renderWith({})['compose.agent.yaml'] ?? '') as Compose;
    expect(services['agent']?.environment).toMatchObject({
      AGENT_GATEWAY_URL: 'http://city:8080',
      AGENT_GATEWAY_TOKEN: expect.stringContaining(':?'),
    });
  });

  test('requires the secrets of PostgreSQL instead of storing them', () => {
    const { services } = parse(
      renderWith({ database: { type: 'postgres', binding: 'db' } })['compose.yaml'] ?? '',
    ) as Compose;
    expect(services['city']?.environment).toMatchObject({
      DATABASE_URL: 'postgres://townhall:${POSTGRES_PASSWORD:?set it}@database:5432/notes-db',
      TOWNHALL_MASTER_KEY: expect.stringContaining(':?'),
    });
    expect(services['city']?.depends_on).toEqual({ database: { condition: 'service_healthy' } });
    expect(services['database']).toMatchObject({
      image: '${POSTGRES_IMAGE:-postgres:18}',
      environment: { POSTGRES_DB: 'notes-db' },
    });
  });

  test.each([{}, { database: { type: 'postgres', binding: 'db' } }])(
    'stores the journal of charges on a volume',
    (resources) => {
      const files = renderWith(resources);
      expect(files['Dockerfile']).toMatch(/^ENV .*\bJOURNAL_PATH=\/data\/journal$/m);
      expect(files['Dockerfile']).toMatch(/^VOLUME .*\/data\b/m);
      expect(parse(files['compose.yaml'] ?? '')).toMatchObject({
        services: { city: { volumes: expect.arrayContaining(['data:/data']) } },
      });
    },
  );
});

describe('the rendered chart', () => {
  function readValues() {
    const files = renderWith({});
    const isValid = new Ajv().compile(JSON.parse(files['chart/values.schema.json'] ?? '') as object);
    const values = parse(files['chart/values.yaml'] ?? '') as Record<string, unknown>;
    return { isValid, values };
  }

  test('has values that match their schema', () => {
    const { isValid, values } = readValues();
    expect([isValid(values), isValid.errors]).toEqual([true, null]);
    expect(values).toMatchObject({
      port: 8080,
      baseUrl: 'https://notes.example.test',
      projectStorage: false,
      ingress: { enabled: false, host: 'notes.example.test' },
    });
  });

  test.each([
    { replicas: 0 },
    { replica: 2 },
    { bucket: { name: 'media', prefix: 'no-slash' } },
    { env: { WORKERS: 2 } },
    { ingress: { enabled: true, host: '' } },
  ])('has a schema that refuses %j', (change) => {
    const { isValid, values } = readValues();
    expect(isValid({ ...values, ...change })).toBe(false);
  });

  test('has every value in its schema and its templates', () => {
    const files = renderWith({});
    const values = parse(files['chart/values.yaml'] ?? '') as Record<string, unknown>;
    const schema = JSON.parse(files['chart/values.schema.json'] ?? '') as { properties: object };
    const templates = Object.entries(files)
      .filter(([name]) => name.startsWith('chart/templates/'))
      .map(([, text]) => text)
      .join('\n');
    expect(
      Object.keys(schema.properties)
        .filter((name) => name !== 'global')
        .sort(),
    ).toEqual(Object.keys(values).sort());
    const namesInTemplates = new Set([...templates.matchAll(/[$.]values\.(\w+)/gi)].map(([, name]) => name));
    expect(Object.keys(values).filter((name) => !namesInTemplates.has(name))).toEqual([]);
    expect([...namesInTemplates].filter((name) => !Object.hasOwn(values, name ?? ''))).toEqual([]);
  });

  test('names the project and its version', () => {
    expect(parse(renderWith({})['chart/Chart.yaml'] ?? '')).toMatchObject({
      apiVersion: 'v2',
      name: 'notes',
      appVersion: '1.2.3',
    });
  });

  test.each([
    ['My_City._', 'my-city'],
    ['2026', '2026'],
    ['null', 'null'],
  ])('of the City %s has the name %s', (name, label) => {
    expect(parse(renderWith({}, { name })['chart/Chart.yaml'] ?? '')).toHaveProperty('name', label);
  });
});

describe('the rendered systemd units', () => {
  test('the unit of the City never runs as root', () => {
    const unit = renderWith({}, { user: 'root' })['notes.service'];
    expect(linesOf(unit)).toContain('User=townhall');
    expect(unit).toContain('useradd --system');
    expect(linesOf(renderWith({}, { user: 'ada' })['notes.service'])).toContain('User=ada');
  });

  test('the unit of the City writes below .townhall only', () => {
    const settings = linesOf(renderWith({})['notes.service']);
    for (const setting of [
      'NoNewPrivileges=true',
      'CapabilityBoundingSet=',
      'ProtectSystem=strict',
      'ProtectHome=read-only',
      'PrivateTmp=true',
      'PrivateDevices=true',
      'RestrictSUIDSGID=true',
      'ReadWritePaths=/srv/notes/.townhall',
    ]) {
      expect(settings).toContain(setting);
    }
  });

  test('the unit of the City quotes a folder only where systemd reads quotes', () => {
    const unit = renderWith({}, { directory: '/srv/100% notes' })['notes.service'] ?? '';
    expect(unit).toContain('\nWorkingDirectory=/srv/100%% notes\n');
    expect(unit).toContain('\nReadWritePaths="/srv/100%% notes/.townhall"\n');
    expect(unit).toContain("\n#   chown --recursive townhall: '/srv/100% notes'\n");
  });

  test('the unit of the City doubles a dollar sign only where systemd replaces variables', () => {
    // Of two dollar signs in an argument, systemd would leave one.
    const unit = renderWith({}, { directory: '/srv/us$$ notes' })['notes.service'] ?? '';
    expect(unit).toMatch(/^ExecStart=.* --project "\/srv\/us\$\$\$\$ notes"$/m);
    expect(unit).toContain('\nWorkingDirectory=/srv/us$$ notes\n');
    expect(unit).toContain('\nReadWritePaths="/srv/us$$ notes/.townhall"\n');
  });

  test('the unit of the agent has its own user and folder', () => {
    const settings = linesOf(renderWith({})['notes-agent.service']);
    for (const setting of [
      'DynamicUser=true',
      'StateDirectory=notes-agent',
      'EnvironmentFile=/etc/townhall/notes-agent.env',
      'NoNewPrivileges=true',
      'CapabilityBoundingSet=',
      'ProtectSystem=strict',
      'PrivateTmp=true',
    ]) {
      expect(settings).toContain(setting);
    }
  });

  describe.skipIf(!hasSystemd)('under systemd-analyze', () => {
    let folder: string;
    afterAll(() => rm(folder, { recursive: true, force: true }));
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'townhall-render-'));
      const program = join(folder, 'program');
      await writeFile(program, '#!/bin/sh\n', { mode: 0o755 });
      const files = renderProject({
        declaration: declarationWith({}),
        version: '1.2.3',
        directory: folder,
        folder,
        user: 'root',
        command: [program, 'with a space'],
      });
      for (const name of units) await writeFile(join(folder, name), files[name] ?? '');
    });

    test.each(units)('%s has no unknown setting', async (name) => {
      const { stderr } = await run('systemd-analyze', ['verify', '--man=no', join(folder, name)], {
        timeout: 20_000,
      }).catch((error: unknown) => {
        const result = error as { code?: unknown; stderr: string };
        // Problems of other units on this machine end the program with a code too. A program that was
        // killed or not found has no number.
        if (typeof result.code !== 'number') throw error;
        return result;
      });
      expect(stderr.split('\n').filter((line) => line.includes(name))).toEqual([]);
    });

    test('the unit quotes the command', async () => {
      expect(await readFile(join(folder, 'notes.service'), 'utf8')).toContain(
        `ExecStart=${folder}/program "with a space" city run --project ${folder}`,
      );
    });

    // The scale is from 0 to 10, and lower is better. systemd 252 reports 1.6 and 3.2. Other versions differ
    // a little.
    test.each([
      ['notes.service', 2],
      ['notes-agent.service', 3.5],
    ])('%s has an exposure of at most %d', async (name, maxExposure) => {
      const { stdout } = await run(
        'systemd-analyze',
        ['security', '--offline=true', '--no-pager', join(folder, name)],
        { timeout: 20_000 },
      );
      const [, exposure] = /Overall exposure level for \S+: ([\d.]+)/.exec(stdout) ?? [];
      expect(Number(exposure)).toBeLessThanOrEqual(maxExposure);
    });
  });
});
