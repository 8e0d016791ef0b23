// `townhall connect` at a real gateway, with a temporary HOME: the files of each tool, the test
// call in its format, and the undo.
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { tools } from '../../src/cli/connect/tools.ts';
import { startGateway, type GatewayWorld } from '../support/gateway.ts';
import { runInProcess, type CommandResult } from './in-process.ts';

let world: GatewayWorld;
let home: string;
beforeAll(async () => {
  world = await startGateway();
});
afterAll(() => world.close());
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'townhall-connect-'));
  await writeFile(join(home, 'login.token'), world.userToken);
  await run('profile', 'set', 'here', '--url', world.url, '--token-file', join(home, 'login.token'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

const run = (...words: string[]): Promise<CommandResult> => runInProcess(words, { HOME: home });
const connect = (tool: string, ...words: string[]) => run('connect', tool, ...words);
const file = (...path: string[]) => join(home, ...path);
const read = (...path: string[]) => readFile(file(...path), 'utf8');
const put = async (text: string, ...path: string[]) => {
  await mkdir(dirname(file(...path)), { recursive: true });
  await writeFile(file(...path), text);
};
const keys = async () => (await world.user.accounts.listKeys()).items;
const recordOf = async (tool: string) =>
  JSON.parse(await read('.config/townhall/connect', `${tool}.json`)) as {
    token: string;
    files: { path: string }[];
  };

/** A file that each tool might have already, and the parts of it that a connection keeps. */
const existing: Record<string, [path: string, text: string, parts: string[]]> = {
  claude: [
    '.claude/settings.json',
    '{\n  "permissions": { "allow": ["Bash(ls)"] }\n}\n',
    ['"permissions": { "allow": ["Bash(ls)"] }'],
  ],
  codex: ['.codex/config.toml', 'model = "gpt-6"\n', ['model = "gpt-6"']],
  opencode: [
    '.config/opencode/opencode.json',
    '{\n  // mine\n  "theme": "system",\n}\n',
    ['// mine', '"theme": "system"'],
  ],
  gemini: ['.gemini/.env', 'GEMINI_API_KEY=mine', ['GEMINI_API_KEY=mine']],
  qwen: [
    '.qwen/settings.json',
    '{\n  "ui": { "theme": "x" } // mine\n}\n',
    ['"ui": { "theme": "x" }', '// mine'],
  ],
  cline: [
    '.cline/data/settings/providers.json',
    '{"version":1,"providers":{"ollama":{"settings":{}}}}',
    ['"version":1', '"ollama":{"settings":{}}'],
  ],
  continue: [
    '.continue/config.yaml',
    'name: Mine\nversion: 1.0.0\nmodels:\n  - name: a # mine\n',
    ['name: Mine', '  - name: a # mine'],
  ],
  aider: ['.aider.conf.yml', 'dark-mode: true # mine\n', ['dark-mode: true # mine']],
};

describe.each(tools.map(({ id }) => id))('townhall connect %s', (tool) => {
  const [path, text, parts] = existing[tool] ?? ['', '', []];

  test('writes the model and a working key, which it does not print', async () => {
    await put(text, path);
    const { code, output } = await connect(tool, '--model', 'local/echo');
    expect(code).toBe(0);
    expect(output.join('\n')).toMatch(/Tested: POST \/v1(beta)?\//);
    const { token, files } = await recordOf(tool);
    const texts = await Promise.all(files.map((entry) => readFile(entry.path, 'utf8')));
    expect(texts.join('')).toContain(token);
    expect(texts.join('')).toContain('local/echo');
    expect(output.join('\n')).not.toContain(token);
    await connect(tool, '--undo');
  });

  test('restores every byte of its files', async () => {
    await put(text, path);
    await connect(tool, '--model', 'local/echo', '--no-test');
    const { files } = await recordOf(tool);
    const undoResult = await connect(tool, '--undo');
    expect(undoResult.output.at(-1)).toBe('The key is revoked.');
    expect(await read(path)).toBe(text);
    for (const addedFile of files.filter((entry) => entry.path !== file(path)))
      await expect(stat(addedFile.path)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(connect(tool, '--undo')).rejects.toThrow('is not connected');
  });

  test('keeps the other entries of its file', async () => {
    await put(text, path);
    await connect(tool, '--model', 'local/echo', '--no-test');
    expect(parts).not.toEqual([]);
    for (const part of parts) expect(await read(path)).toContain(part);
    await connect(tool, '--undo');
  });

  test('writes files that only their owner can read', async () => {
    await connect(tool, '--model', 'local/echo', '--no-test');
    const { files } = await recordOf(tool);
    for (const entry of files) expect((await stat(entry.path)).mode & 0o777).toBe(0o600);
    expect((await stat(file('.config/townhall/connect', `${tool}.json`))).mode & 0o777).toBe(0o600);
    await connect(tool, '--undo');
  });

  test('only shows the changes with --print', async () => {
    await put(text, path);
    const filesBefore = await readdir(home, { recursive: true });
    const { output } = await connect(tool, '--model', 'local/echo', '--print');
    expect(output.join('\n')).toContain('th_usr_YOUR_KEY');
    expect(await read(path)).toBe(text);
    expect(await readdir(home, { recursive: true })).toEqual(filesBefore);
  });
});

describe('townhall connect', () => {
  test('names the key after the tool and limits it', async () => {
    await connect('claude', '--models', 'local/echo', '--budget', '0.5', '--ttl', '2h', '--no-test');
    const [key] = (await keys()).slice(-1);
    expect(key).toMatchObject({ models: ['local/echo'], credit_cap: 500_000 });
    expect(key?.name).toMatch(/^Claude Code on /);
    expect(Date.parse(key?.expires_at ?? '') - Date.now()).toBeLessThanOrEqual(7_200_000);
    await connect('claude', '--undo');
  });

  test('replaces an earlier connection and its key', async () => {
    await put('{}\n', '.claude/settings.json');
    const keyCount = (await keys()).length;
    await connect('claude', '--model', 'local/echo', '--no-test');
    await connect('claude', '--model', 'local/guide', '--no-test');
    expect(await keys()).toHaveLength(keyCount + 1);
    await connect('claude', '--undo');
    expect(await read('.claude/settings.json')).toBe('{}\n');
    expect(await keys()).toHaveLength(keyCount);
  });

  test('removes only its own entries from a changed file', async () => {
    await connect('claude', '--model', 'local/echo', '--no-test');
    const settings = JSON.parse(await read('.claude/settings.json')) as { env: object };
    const changedSettings = { ...settings, env: { ...settings.env, MINE: '1' } };
    await put(JSON.stringify(changedSettings), '.claude/settings.json');
    const { output } = await connect('claude', '--undo');
    expect(output[0]).toContain("only Townhall's entries are removed");
    expect(JSON.parse(await read('.claude/settings.json'))).toEqual({ env: { MINE: '1' } });
  });

  test('revokes the key when a file cannot be edited', async () => {
    await put('{ broken', '.gemini/settings.json');
    const keyCount = (await keys()).length;
    await expect(connect('gemini', '--model', 'local/echo')).rejects.toThrow('settings.json: line 1');
    expect(await keys()).toHaveLength(keyCount);
    expect(await readdir(file('.gemini'))).toEqual(['settings.json']);
  });

  test('says how to undo when the test call is refused', async () => {
    await expect(connect('claude', '--model', 'acme/unknown')).rejects.toThrow(/test call failed.*--undo/);
    await connect('claude', '--undo');
  });

  test.each([
    ['local/echo', true],
    ['openai/gpt-6', false],
  ])('turns off tools of Codex that %s cannot take: %s', async (model, isOff) => {
    const { output } = await connect('codex', '--model', model, '--print');
    expect(output.join('\n').includes('[agents]\nenabled = false')).toBe(isOff);
    expect(output.join('\n').includes('web_search = "disabled"')).toBe(isOff);
  });

  test('lets Codex call over a WebSocket', async () => {
    const { output } = await connect('codex', '--model', 'local/echo', '--print');
    expect(output.join('\n')).toContain('supports_websockets = true');
  });

  test('refuses a budget that is not an amount', async () => {
    await expect(connect('claude', '--budget', 'much')).rejects.toThrow('--budget takes US dollars');
  });

  test('prints JSON without the key', async () => {
    const { output } = await connect('codex', '--model', 'local/echo', '--json');
    expect(JSON.parse(output.join(''))).toMatchObject({
      tool: 'codex',
      model: 'local/echo',
      files: [file('.codex/townhall.config.toml')],
      test: { path: '/v1/responses' },
    });
    expect(output.join('')).not.toContain('th_usr_');
    await connect('codex', '--undo');
  });
});
