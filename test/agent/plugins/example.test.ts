// The example plugin, loaded from its file as `--plugin` does: called in a run and over HTTP in
// both variants.
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAgentClient } from '@townhall/agent';
import { createAgentClient as createClassicClient } from '@townhall/agent/classic';
import { startAgent } from '../../support/agent.ts';
import { databaseFlags, makeDatabase } from '../../support/databases.ts';
import {
  calls,
  says,
  scriptedGateway,
  toolResults,
  type ScriptedGateway,
} from '../../support/scripted-gateway.ts';
import { launch } from '../launch.ts';

const example = join(import.meta.dirname, '../../../examples/plugin-journal.ts');
const main = join(import.meta.dirname, '../../../src/cli/main.ts');
let gateway: ScriptedGateway;
let folder: string;
beforeAll(async () => {
  gateway = await scriptedGateway();
  folder = await mkdtemp(join(tmpdir(), 'townhall-example-'));
});
afterAll(async () => {
  await gateway.close();
  await rm(folder, { recursive: true, force: true });
});

interface RunningAgent {
  url: string;
  token: string;
  /** Sends SIGTERM and returns the exit code. */
  stop(): Promise<number | null>;
}

// A process of its own: in the test process, vitest's loader would resolve the plugin's imports.
async function runAgent(dataDir: string, ...flags: string[]): Promise<RunningAgent> {
  const place = await makeDatabase({ isEmpty: true });
  const ownFlags = ['--port', '0', '--data-dir', dataDir, '--gateway-url', gateway.url];
  const { child, url, token } = await launch(
    [main, 'agent', ...ownFlags, ...databaseFlags(place.options), ...flags],
    { dataDir, cwd: folder },
  );
  return {
    url,
    token,
    async stop() {
      const exit = once(child, 'exit');
      child.kill('SIGTERM');
      const [code] = (await exit) as [number | null];
      await place.remove();
      return code;
    },
  };
}

test.each(['current', 'classic'] as const)(
  'runs the example journal in a run and over HTTP (%s)',
  async (variant) => {
    gateway.answer((request) => {
      const results = toolResults(request);
      if (results.length === 0)
        return calls(
          { name: 'files_write', input: { path: 'a.txt', content: 'x' } },
          { name: 'files_write', input: { path: '.env', content: 'x' } },
        );
      if (results.length === 2) return calls({ name: 'journal_read', input: {} });
      return says(JSON.stringify(results.map(({ output }) => output.value)));
    });
    const agent = await runAgent(join(folder, variant), '--plugin', example, '--variant', variant);
    let code: number | null = null;
    try {
      const current = createAgentClient({ baseUrl: agent.url, token: agent.token });
      const { text } = (await current.sessions.execute({ instructions: 'Write.' })) as { text: string };
      expect(text).toContain('"created":true');
      expect(text).toContain('This agent does not open .env files.');
      const read =
        variant === 'classic'
          ? createClassicClient({ baseUrl: agent.url, token: agent.token }).plugins.callAction({
              pluginName: 'journal',
              actionName: 'read',
            })
          : current.plugins.callAction({ plugin_name: 'journal', action_name: 'read' });
      const { entries } = (await read).result as { entries: string[] };
      expect(entries).toContain('files_write succeeded');
      // The example's guard refused to write .env, so the journal has no entry about that call.
      expect(entries.some((entry) => entry.includes('failed'))).toBe(false);
    } finally {
      code = await agent.stop();
    }
    expect(code).toBe(0);
  },
);

describe('--plugin and --plugin-config', () => {
  const start = (settings: object) =>
    startAgent({ gatewayUrl: gateway.url, settings }).then((agent) => agent.close());
  test.each([
    ['a file that does not exist', undefined, /does not exist/],
    ['a file that does not load', 'throw new Error("broken");', /cannot be loaded: broken/],
    ['a file without a plugin', 'export const x = 1;', /exports no plugin/],
    [
      'a plugin with the name of another',
      'export default { name: "files", title: "", description: "", actions: {} };',
      /Two plugins claim the name "files"/,
    ],
  ])('refuse %s at the start', async (name, text, reason) => {
    const path = join(folder, `${name.replaceAll(' ', '-')}.ts`);
    if (text !== undefined) await writeFile(path, text);
    await expect(start({ plugins: [path] })).rejects.toThrow(reason);
  });

  test.each([
    ['invalid JSON', '{', /is not JSON/],
    ['an unknown member', '{"plugin":{}}', /plugin is not known here/],
    ['a server without a command or an address', '{"mcpServers":{"a":{}}}', /is invalid: mcpServers/],
    ['an unknown plugin', '{"plugins":{"nothing":{}}}', /names the plugin "nothing"/],
    ['invalid settings', '{"plugins":{"shell":{"settings":{"approval":1}}}}', /are invalid/],
  ])('refuse a configuration with %s', async (name, text, reason) => {
    const path = join(folder, `${name.replaceAll(' ', '-')}.json`);
    await writeFile(path, text);
    await expect(start({ pluginConfig: path })).rejects.toThrow(reason);
  });

  test('disable a plugin and its tools', async () => {
    const path = join(folder, 'off.json');
    await writeFile(path, '{"plugins":{"shell":{"enabled":false}}}');
    const agent = await startAgent({ gatewayUrl: gateway.url, settings: { pluginConfig: path } });
    try {
      const { plugins } = await agent.client.plugins.listPlugins();
      expect(plugins.find(({ name }) => name === 'shell')).toMatchObject({
        state: 'unavailable',
        reasons: ['It is disabled by configuration.'],
      });
      gateway.answer(() => says('Fine.'));
      gateway.requests.length = 0;
      await agent.client.sessions.execute({ instructions: 'Say something.' });
      const tools = gateway.requests[0]?.tools?.map(({ name }) => name) ?? [];
      expect(tools).toContain('files_read');
      expect(tools).toContain('memory_search');
      expect(tools.filter((name) => name.startsWith('shell_') || name.startsWith('mcp_'))).toEqual([]);
    } finally {
      await agent.close();
    }
  });
});
