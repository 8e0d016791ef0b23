// `townhall gateway` serves the folder of a project in which no packages are installed.
import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { townhall, type Run } from '../../cli/townhall.ts';
import { databaseEnv, makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { testMasterKey } from '../../support/gateway.ts';

const example = fileURLToPath(new URL('../../../examples/project', import.meta.url));
const administrator = { ADMIN_ID: 'admin', ADMIN_PASSWORD: 'a password for tests only' };

let folder: string;
let place: DatabasePlace;
let databaseSettings: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-project-'));
  place = await makeDatabase();
  databaseSettings = databaseEnv(place.options);
});
afterAll(async () => {
  await place?.remove();
  await rm(folder, { recursive: true, force: true });
});

const start = (project: string, env: Record<string, string> = {}): Run =>
  townhall(['gateway', '--project', project, '--port', '0', '--host', '127.0.0.1'], {
    cwd: folder,
    env: { ...databaseSettings, TOWNHALL_MASTER_KEY: testMasterKey, ...administrator, ...env },
  });

describe('townhall gateway --project', () => {
  let run: Run;
  let url: string;
  let guest: GatewayClient;
  let admin: GatewayClient;
  let userToken: string;
  beforeAll(async () => {
    const project = join(folder, 'notes');
    await cp(example, project, { recursive: true });
    run = start(project);
    url = (await run.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/))[1] ?? '';
    guest = createGatewayClient({ baseUrl: url });
    const session = await guest.admin.login({
      admin_id: administrator.ADMIN_ID,
      password: administrator.ADMIN_PASSWORD,
    });
    admin = createGatewayClient({ baseUrl: url, token: session.session_token });
    // An embedded database has a Bureau from its start; a new PostgreSQL database has none.
    const { items } = await admin.bureaus.listBureaus();
    const bureauId =
      items[0]?.bureau_id ??
      (await admin.bureaus.createBureau({ server_url: 'https://example.test' })).bureau_id;
    userToken = (await admin.accounts.issueToken({ bureau_id: bureauId, external_id: 'ada' })).user_token;
  });
  afterAll(async () => {
    run?.process.kill('SIGTERM');
    expect(await run?.ended).toBe(0);
  });

  test('serves the services that the entry exports', async () => {
    const user = createGatewayClient({ baseUrl: url, token: userToken });
    await expect(guest.call('notes', 'about', {}, { method: 'GET' })).resolves.toEqual({
      greeting: 'Notes, one list a user.',
    });
    const note = { note_id: 'note_1', text: 'Good morning' };
    await expect(user.call('notes', 'add', { text: note.text })).resolves.toEqual(note);
    await expect(user.call('notes', 'list', { limit: 1 }, { method: 'GET' })).resolves.toEqual({
      items: [note],
    });
    const { user: me } = await user.accounts.getMe();
    await expect(admin.call('notes', 'users/clear', { user_id: me.user_id })).resolves.toEqual({
      cleared: true,
    });
  });

  test('refuses identities and inputs that an action does not declare', async () => {
    const user = createGatewayClient({ baseUrl: url, token: userToken });
    await expect(guest.call('notes', 'add', { text: 'x' })).rejects.toMatchObject({ status: 401 });
    await expect(admin.call('notes', 'add', { text: 'x' })).rejects.toMatchObject({ status: 403 });
    await expect(user.call('notes', 'users/clear', { user_id: 'x' })).rejects.toMatchObject({ status: 403 });
    await expect(user.call('notes', 'add', { text: '' })).rejects.toMatchObject({
      status: 400,
      code: 'service_invalid_input',
    });
  });

  test('answers with the ActionError of an action', async () => {
    await expect(admin.call('notes', 'users/clear', { user_id: 'nobody' })).rejects.toMatchObject({
      status: 404,
      code: 'service_no_notes',
    });
  });

  test('lists its services in /health and /v1/services', async () => {
    expect((await guest.directory.getHealth()).services).toContain('notes');
    const { items } = await admin.directory.listServices();
    expect(items.find(({ id }) => id === 'notes')).toMatchObject({
      name: 'Notes',
      env: [{ key: 'NOTES_GREETING', required: false }],
    });
  });

  test('passes a stored variable to its services', async () => {
    await admin.env.upsertVariable({ key: 'NOTES_GREETING', value: 'Welcome.' });
    await expect(guest.call('notes', 'about', {}, { method: 'GET' })).resolves.toEqual({
      greeting: 'Welcome.',
    });
  });
});

describe('a service that fails outside of a call', () => {
  const source = `
import { defineService } from 'townhall';
const act = (run) => ({ identities: [], method: 'POST', run });
export const late = defineService({
  id: 'late', name: 'Late',
  actions: {
    timer: act(async () => { setTimeout(() => { throw new Error('late in a timer'); }, 5); return {}; }),
    rejection: act(async () => { void Promise.reject(new Error('nothing awaits this')); return {}; }),
    exit: act(async () => { setTimeout(() => process.exit(3), 5); return {}; }),
    sound: act(async () => ({ ok: true })),
  },
});
`;

  test('does not end the gateway', async () => {
    const project = join(folder, 'late');
    await cp(example, project, { recursive: true });
    await writeFile(join(project, 'src', 'index.ts'), source);
    const run = start(project);
    const url = (await run.waitFor(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/))[1] ?? '';
    const guest = createGatewayClient({ baseUrl: url });
    for (const action of ['timer', 'rejection', 'exit']) await guest.call('late', action, {});
    for (const message of ['late in a timer', 'nothing awaits this', 'process\\.exit'])
      await run.waitFor(new RegExp(message));
    await expect(guest.call('late', 'sound', {})).resolves.toEqual({ ok: true });
    run.process.kill('SIGTERM');
    expect(await run.ended).toBe(0);
  });
});

describe('a project that cannot be served', () => {
  const declaration = (members: object = {}) =>
    JSON.stringify({
      schema: 1,
      type: 'city',
      id: 'cty_x',
      name: 'x',
      deployment: { target: 'local' },
      ...members,
    });
  const importLine = "import { defineService } from 'townhall';";
  const serviceSource = (id: string) =>
    `defineService({ id: '${id}', name: 'X', actions: { a: { method: 'GET', run: () => 1 } } })`;
  test.each<[string, Record<string, string>, string]>([
    ['has no declaration', {}, 'townhall.json cannot be read (ENOENT)'],
    [
      'has a declaration that is not JSON',
      { 'townhall.json': '{"a":' },
      'townhall.json:1:6: a value was expected, not the end of the file',
    ],
    [
      'has an entry outside of its folder',
      { 'townhall.json': declaration({ entry: '../../etc/x.ts' }) },
      ': entry must be a path within the project',
    ],
    [
      'has no entry',
      { 'townhall.json': declaration() },
      'townhall.json:1:1: entry names src/index.ts, but this file does not exist in ',
    ],
    [
      'has an entry that throws',
      {
        'townhall.json': declaration(),
        'src/index.ts': "const x: number = 1;\nthrow new Error('my own words');",
      },
      'src/index.ts: my own words (line 2)',
    ],
    [
      'has an entry that does not parse',
      { 'townhall.json': declaration(), 'src/index.ts': 'export const = 1;' },
      'src/index.ts: ',
    ],
    [
      'imports a missing file',
      { 'townhall.json': declaration({ entry: 'main.js' }), 'main.js': "import './gone.js';" },
      'main.js: Cannot find module',
    ],
    [
      'exports no service',
      { 'townhall.json': declaration(), 'src/index.ts': 'export const x = 1;' },
      'src/index.ts: exports no service',
    ],
    [
      'exports a service without defineService',
      { 'townhall.json': declaration(), 'src/index.ts': "export const x = { id: 'x', actions: {} };" },
      'src/index.ts: the export x looks like a service',
    ],
    [
      'has two services with the same id',
      {
        'townhall.json': declaration(),
        'src/index.ts': `${importLine}\nexport const list = [${serviceSource('x')}, ${serviceSource('x')}];`,
      },
      'src/index.ts: service "x": id is already used by a service in src/index.ts',
    ],
    [
      'has a service with a reserved id',
      {
        'townhall.json': declaration(),
        'src/index.ts': `${importLine}\nexport default ${serviceSource('payments')};`,
      },
      'service "payments": id is reserved by the server',
    ],
  ])('stops the start when it %s', async (description, files, message) => {
    const project = join(folder, description.replaceAll(' ', '-'));
    await mkdir(project, { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(project, name)), { recursive: true });
      await writeFile(join(project, name), text);
    }
    const data = join(project, 'data');
    const { DATABASE_URL: _url, ...rest } = databaseSettings;
    const run = townhall(['gateway', '--project', project, '--port', '0'], {
      cwd: folder,
      env: { ...rest, DATABASE_PATH: data },
    });
    expect(await run.ended).toBe(1);
    expect(run.screen()).toContain(message);
    expect(run.screen()).not.toContain('    at ');
    expect(await readdir(project)).not.toContain('data');
  });
});
