// Turns the tools of MCP servers into actions: with names that are unique over all servers, schemas of
// bounded size, and an approval policy. Tools that cannot be offered are dropped with a reason.
import { createHash } from 'node:crypto';
import type { JsonSchema } from '../../../../kernel/contract/schema.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { startOfText } from '../../../../kernel/start-of-text.ts';
import type { McpApproval, McpServer } from '../../definition/mcp-server.ts';
import type { Action } from '../../definition/plugin.ts';
import { isUsableSchema, simpleCheck } from './third-party-schema.ts';
import type { McpTool } from './connection.ts';
import type { ConnectedServer } from './server.ts';

const callTimeoutMs = 120_000;
const maxDescriptionLength = 4_096;
// With the prefix `mcp_` this is the longest name of a tool.
const maxActionNameLength = 60;
// Every step sends all schemas to the model; if they exceeded the gateway's limit for a request, every
// run would fail.
const maxSchemaBytes = 64 * 1024;
const maxSchemaBytesOfServer = 1024 * 1024;

export interface DroppedTool {
  server: string;
  tool: string;
  /** A sentence for the operator. */
  reason: string;
}

/** The actions of all connected servers, and the tools that cannot be offered. */
export function collectActions(
  servers: readonly ConnectedServer[],
  config: ReadonlyMap<string, McpServer>,
): { actions: Record<string, Action>; dropped: DroppedTool[] } {
  const actions: Record<string, Action> = {};
  const droppedTools: DroppedTool[] = [];
  for (const server of servers) {
    const approval = config.get(server.name)?.approval ?? 'writes';
    let schemaBytes = 0;
    for (const tool of server.tools()) {
      const drop = (reason: string): void => {
        const label = `The tool ${JSON.stringify(tool.name.slice(0, 100))} of the server "${server.name}"`;
        droppedTools.push({
          server: server.name,
          tool: tool.name,
          reason: `${label} is left out: ${reason}`,
        });
      };
      const bytes = schemaBytesOf(tool);
      if (bytes === undefined) {
        drop('its input schema is nested too deeply.');
        continue;
      }
      if (bytes > maxSchemaBytes || schemaBytes + bytes > maxSchemaBytesOfServer) {
        drop(
          `its input schema has more than ${maxSchemaBytes / 1024} KiB, or those of the server ` +
            `have more than ${maxSchemaBytesOfServer / 1024} KiB.`,
        );
        continue;
      }
      schemaBytes += bytes;
      const input = inputSchema(tool);
      const name = actionName(server.name, tool.name);
      const owner = ownerOf(name, config.keys());
      if (input === null) drop('its input schema is not valid.');
      else if (owner !== server.name) drop(`its name "${name}" belongs to the server "${owner}".`);
      else if (Object.hasOwn(actions, name))
        drop(`another tool of the server has the name "${name}" already.`);
      else actions[name] = toAction(server, tool, { input, approval });
    }
  }
  return { actions, dropped: droppedTools };
}

/** Undefined for a schema so deep that writing it as JSON overflows the stack. */
function schemaBytesOf({ inputSchema: schema }: McpTool): number | undefined {
  try {
    return Buffer.byteLength(JSON.stringify(schema));
  } catch {
    return undefined;
  }
}

function toAction(
  server: ConnectedServer,
  tool: McpTool,
  { input, approval }: { input: JsonSchema; approval: McpApproval },
): Action {
  const description = `${tool.description ?? tool.title ?? tool.name} (of the MCP server ${server.name})`;
  return {
    // Half of a surrogate pair would make the gateway refuse every request with this tool.
    description: startOfText(description, maxDescriptionLength),
    api: true,
    command: true,
    input,
    check: simpleCheck(input),
    // `readOnly` is the server's own claim; an operator who does not trust it sets the approval to `always`.
    readOnly: tool.readOnly,
    needsApproval: approval === 'always' || (approval === 'writes' && !tool.readOnly),
    timeoutMs: callTimeoutMs,
    async run(toolInput: never, { signal, refuse }) {
      const connection = server.connection();
      if (connection === null)
        throw new Problem(
          'conflict',
          'plugin_unavailable',
          server.reason() ?? `The server "${server.name}" is not connected.`,
        );
      const options = { signal, timeoutMs: callTimeoutMs };
      const { isError, text, content, structured } = await connection.call(tool.name, toolInput, options);
      if (isError) refuse(text === '' ? 'The tool failed without a message.' : text);
      return structured ?? (content.length === 1 && text !== '' ? { text } : { content });
    },
  };
}

// Servers may declare older drafts of JSON Schema; the keywords they use have the same meaning in
// 2020-12.
function inputSchema({ inputSchema: schema }: McpTool): JsonSchema | null {
  const { $schema: _draft, ...members }: Record<string, unknown> = { ...schema, type: 'object' };
  return isUsableSchema(members) ? members : null;
}

// The name must not depend on the connected servers, or a call could reach another server than
// intended. A name that is cut, whose characters outside of ASCII are replaced, or that has no letter or
// digit (its slug is then `tool`) gets a digest of the original. Only a tool that is called `tool` keeps that
// slug.
function actionName(server: string, tool: string): string {
  const slug =
    tool
      .toLowerCase()
      .replaceAll(/[^a-z0-9]+/g, '-')
      .replaceAll(/^-+|-+$/g, '') || 'tool';
  const name = `${server}-${slug}`;
  const isLossy = /[^\x20-\x7e]/.test(tool) || slug === 'tool' || name.length > maxActionNameLength;
  if (!isLossy || tool.toLowerCase() === 'tool') return name;
  const digest = createHash('sha256').update(tool).digest('hex').slice(0, 8);
  return `${name.slice(0, maxActionNameLength - digest.length - 1)}-${digest}`;
}

// Server `a` with tool `b-c` and server `a-b` with tool `c` have the same name; the longer server
// name owns it.
function ownerOf(action: string, servers: Iterable<string>): string | undefined {
  return [...servers]
    .filter((server) => action.startsWith(`${server}-`))
    .sort((a, b) => b.length - a.length)[0];
}
