// An MCP server as a program, built on the SDK's server, for tests of the plugin `mcp`. It writes
// its process id into its working directory, starts a child as launched servers do, and offers
// tools that control the rest.
import { spawn } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const child = spawn('sleep', ['300'], { stdio: 'ignore', detached: true });
writeFileSync('mcp-pids', `${process.pid} ${child.pid}`);
const server = new McpServer({ name: 'probe', version: '1.0.0' });
const readOnly = { annotations: { readOnlyHint: true } };
server.registerTool(
  'Add_Numbers',
  { description: 'Adds two numbers.', inputSchema: { a: z.number(), b: z.number() }, ...readOnly },
  async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }),
);
server.registerTool(
  'environment',
  { description: 'Names of the environment.', inputSchema: {}, ...readOnly },
  async () => ({ content: [{ type: 'text', text: Object.keys(process.env).join(' ') }] }),
);
server.registerTool('fails', { description: 'Fails.', inputSchema: {}, ...readOnly }, async () => ({
  isError: true,
  content: [{ type: 'text', text: 'No luck today.' }],
}));
server.registerTool('writes', { description: 'Changes something.', inputSchema: {} }, async () => ({
  content: [{ type: 'text', text: 'done' }],
}));
server.registerTool('dies', { description: 'Ends the server.', inputSchema: {}, ...readOnly }, async () =>
  process.exit(1),
);
server.registerTool('grow', { description: 'Adds a tool.', inputSchema: {}, ...readOnly }, async () => {
  server.registerTool('later', { description: 'Came later.', inputSchema: {}, ...readOnly }, async () => ({
    content: [{ type: 'text', text: 'here' }],
  }));
  return { content: [{ type: 'text', text: 'grown' }] };
});
for (const name of (process.env['MORE_TOOLS'] ?? '').split(',').filter(Boolean)) {
  server.registerTool(name, { description: name, inputSchema: {}, ...readOnly }, async () => ({
    content: [{ type: 'text', text: `${process.env['SERVER']}: ${name}` }],
  }));
}
// Everything that the client writes, for tests that count its messages.
process.stdin.on('data', (piece: Buffer) =>
  appendFileSync(`mcp-input-${process.env['SERVER'] ?? 'probe'}`, piece),
);
await server.connect(new StdioServerTransport());
