// The MCP protocol's reference server from npm, bridged by one line of configuration: the model
// gets its tools, and a run calls one. Skipped with a warning where the package is not installed.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import {
  calls,
  says,
  scriptedGateway,
  toolResults,
  type ScriptedGateway,
} from '../../support/scripted-gateway.ts';

const name = '@modelcontextprotocol/server-everything';
const program = findProgram();
if (program === undefined)
  console.warn(`SKIPPED: ${name} is not installed; no MCP server from npm was bridged.`);

function findProgram(): string | undefined {
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), 'dist', 'index.js');
  } catch {
    return undefined;
  }
}

describe.skipIf(program === undefined).each(['current', 'classic'] as const)(
  'an MCP server from npm (%s)',
  (variant) => {
    let folder: string;
    let gateway: ScriptedGateway;
    let agent: TestAgent;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'townhall-mcp-npm-'));
      const config = join(folder, 'plugins.json');
      await writeFile(
        config,
        JSON.stringify({
          mcpServers: { everything: { command: process.execPath, args: [program], approval: 'never' } },
        }),
      );
      gateway = await scriptedGateway();
      agent = await startAgent({
        gatewayUrl: gateway.url,
        variant,
        settings: { pluginConfig: config, unsafeShell: true },
      });
    });
    afterAll(async () => {
      await agent.close();
      await gateway.close();
      await rm(folder, { recursive: true, force: true });
    });

    test('offers its tools to the model and is called in a run', async () => {
      const actions = async () =>
        (await agent.client.ui.listPlugins()).plugins.find((plugin) => plugin.name === 'mcp')?.actions ?? [];
      await expect
        .poll(actions, { timeout: 60_000 })
        .toEqual(expect.arrayContaining(['everything-echo', 'everything-get-sum']));
      gateway.answer((request) => {
        const results = toolResults(request);
        if (results.length === 0)
          return calls(
            { name: 'mcp_everything-get-sum', input: { a: 20, b: 22 } },
            { name: 'mcp_everything-echo', input: { message: 'hello from a turn' } },
          );
        return says(JSON.stringify(results.map(({ output }) => output.value)));
      });
      const answer = await agent.client.sessions.execute({ instructions: 'Add, and say hello.' });
      const { text } = answer as { text: string };
      expect(text).toContain('42');
      expect(text).toContain('hello from a turn');
      const tool = gateway.requests[0]?.tools?.find((tool) => tool.name === 'mcp_everything-get-sum');
      expect(tool).toMatchObject({
        inputSchema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
      });
    });
  },
);
