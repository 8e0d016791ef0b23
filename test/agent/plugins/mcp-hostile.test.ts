// The plugin `mcp` against misbehaving servers, over HTTP, since third parties often run such
// servers.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { afterEach, describe, expect, test } from 'vitest';
import {
  callAction,
  createProgramRunner,
  createRegistry,
  mcp,
  openWorkspace,
  type ActionOutcome,
  type PluginRegistry,
} from '../../../src/agent/plugins/index.ts';
import { collectActions } from '../../../src/agent/plugins/builtin/mcp/tools.ts';
import { openSandbox } from '../../../src/agent/processes/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { silentLog } from '../../support/databases.ts';
import { listen } from '../../support/local-server.ts';

type Message = { id?: number; method: string; params?: { name?: string; arguments?: object } };

interface HostileServer {
  url: string;
  /** JSON-RPC methods of all received messages, in order. */
  methods: string[];
  close(): Promise<void>;
}

interface Behaviour {
  tools: object[];
  /** Writes the answer to a listing of the tools. */
  list?(message: Message, response: ServerResponse): void;
  /** Writes the answer of a tool call. */
  call?(message: Message, response: ServerResponse): void;
  /** Writes into the notification stream. */
  notify?(response: ServerResponse): void;
  /** Handles any request first; true means that it has answered. */
  before?(request: IncomingMessage, response: ServerResponse): boolean;
}

async function startHostileServer(behaviour: Behaviour): Promise<HostileServer> {
  const methods: string[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (behaviour.before?.(request, response) === true) return;
    if (request.method !== 'POST') {
      if (request.method === 'GET' && behaviour.notify !== undefined) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        behaviour.notify(response);
        return;
      }
      response.writeHead(405).end();
      return;
    }
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk as string;
    const message = JSON.parse(text) as Message;
    methods.push(message.method);
    const reply = (result: object) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
    if (message.id === undefined) response.writeHead(202).end();
    else if (message.method === 'initialize')
      reply({
        protocolVersion: '2025-06-18',
        capabilities: { tools: { listChanged: true } },
        serverInfo: { name: 'hostile', version: '1' },
      });
    else if (message.method === 'tools/list' && behaviour.list !== undefined)
      behaviour.list(message, response);
    else if (message.method === 'tools/list') reply({ tools: behaviour.tools });
    else if (behaviour.call !== undefined) behaviour.call(message, response);
    else
      reply({
        content: [{ type: 'text', text: JSON.stringify(message.params?.arguments) }],
        structuredContent: { text: `${'a'.repeat(40)}!` },
      });
  };
  const server = createServer((request, response) => void answer(request, response));
  const { url } = await listen(server);
  return {
    url: `${url}/mcp`,
    methods,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const readOnly = { annotations: { readOnlyHint: true } };
const plainTool = {
  name: 'plain',
  inputSchema: { type: 'object', required: ['text'], properties: { text: { type: 'string' } } },
  ...readOnly,
};

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function open(
  behaviour: Behaviour,
  members: { headers?: Record<string, string>; lines?: string[] } = {},
): Promise<{ registry: PluginRegistry; server: HostileServer }> {
  const server = await startHostileServer(behaviour);
  closers.push(server.close);
  const redactor = createRedactor();
  const log =
    members.lines === undefined
      ? silentLog
      : createLog({ level: 'info', redactor, write: (line) => void members.lines?.push(line) });
  const servers = new Map([
    ['far', { url: server.url, ...(members.headers ? { headers: members.headers } : {}) }],
  ]);
  const workspace = await openWorkspace({ folder: tmpdir(), hidden: [] });
  const sandbox = await openSandbox({ workspace: tmpdir(), hidden: [], read: [], isOff: true, path: '' });
  const programs = createProgramRunner({ sandbox, workspace, env: {} });
  const registry = createRegistry(
    [mcp({ servers, workspace: tmpdir(), programs, redactor, fetch, clock: systemClock, log })],
    { log },
  );
  await registry.start(tmpdir());
  closers.push(() => registry.stop());
  return { registry, server };
}

const actionsOf = (registry: PluginRegistry): string[] => [...(registry.plugin('mcp')?.tools.keys() ?? [])];

async function call(registry: PluginRegistry, action: string, input: unknown): Promise<ActionOutcome> {
  const tool = registry.tool(`mcp_${action}`);
  if (tool === undefined) throw new Error(`There is no tool ${action}.`);
  return callAction({
    tool,
    input,
    workspace: tmpdir(),
    isApproved: true,
    signal: new AbortController().signal,
    timeoutMs: 60_000,
    clock: systemClock,
    log: silentLog,
  });
}

test('the tools of an MCP server that change during their first listing are listed again', async () => {
  let count = 0;
  const { registry } = await open({
    tools: [],
    list({ id }, response) {
      count += 1;
      const change = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };
      const answer = { jsonrpc: '2.0', id, result: { tools: count === 1 ? [] : [plainTool] } };
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const message of count === 1 ? [change, answer] : [answer])
        response.write(`data: ${JSON.stringify(message)}\n\n`);
      response.end();
    },
  });
  await expect.poll(() => actionsOf(registry)).toEqual(['far-plain']);
});

describe('the schemas of an MCP server', () => {
  test('never run a pattern for an input', async () => {
    const inputSchema = {
      type: 'object',
      required: ['text'],
      properties: { text: { type: 'string', pattern: '^(a+)+$' } },
      patternProperties: { '^(b+)+$': {} },
    };
    const { registry } = await open({ tools: [{ name: 'slow', inputSchema, ...readOnly }] });
    const text = `${'a'.repeat(40)}!`;
    expect(await call(registry, 'far-slow', { text })).toMatchObject({ ok: true });
    expect(await call(registry, 'far-slow', { text: 1 })).toMatchObject({
      ok: false,
      message: expect.stringContaining('text must be string'),
    });
  });

  test('never resolve exponential references for an input', async () => {
    const steps = Array.from(
      { length: 40 },
      (_, index) =>
        [
          `s${index}`,
          { allOf: [{ $ref: `#/$defs/s${index + 1}` }, { $ref: `#/$defs/s${index + 1}` }] },
        ] as const,
    );
    const inputSchema = {
      type: 'object',
      $ref: '#/$defs/s0',
      $defs: { ...Object.fromEntries(steps), s40: { required: ['text'] } },
    };
    const { registry } = await open({ tools: [{ name: 'deep', inputSchema, ...readOnly }] });
    expect(await call(registry, 'far-deep', { text: 'x' })).toMatchObject({ ok: true });
  });

  test('never validate a result', async () => {
    const outputSchema = { type: 'object', properties: { text: { type: 'string', pattern: '^(a+)+$' } } };
    const { registry } = await open({ tools: [{ ...plainTool, outputSchema }] });
    expect(await call(registry, 'far-plain', { text: 'x' })).toMatchObject({
      ok: true,
      output: { text: `${'a'.repeat(40)}!` },
    });
  });

  test('keep a tool whose output schema is invalid', async () => {
    const outputSchema = { type: 'object', properties: { text: { type: 'nonsense' } } };
    const { registry } = await open({ tools: [{ ...plainTool, outputSchema }] });
    expect(actionsOf(registry)).toEqual(['far-plain']);
  });

  test('leave out only the tool whose schema is too large', async () => {
    const largeTool = {
      ...plainTool,
      name: 'large',
      inputSchema: { type: 'object', description: 'x'.repeat(300_000) },
    };
    const { registry } = await open({ tools: [largeTool, plainTool] });
    expect(actionsOf(registry)).toEqual(['far-plain']);
    expect((await registry.plugin('mcp')?.availability())?.reasons).toEqual([
      expect.stringMatching(/"large" of the server "far" is left out: .*KiB/),
    ]);
  });

  test('leave out only the tool whose schema is nested too deeply', () => {
    let deepSchema: object = {};
    for (let depth = 0; depth < 200_000; depth += 1) deepSchema = { items: deepSchema };
    const tool = { name: 'plain', inputSchema: { type: 'object' }, readOnly: true };
    const server = {
      name: 'far',
      tools: () => [{ ...tool, name: 'deep', inputSchema: { type: 'object', items: deepSchema } }, tool],
      connection: () => null,
      reason: () => null,
      run: async () => {},
      close: async () => {},
    };
    const { actions, dropped } = collectActions([server], new Map([['far', { url: 'http://far/' }]]));
    expect(Object.keys(actions)).toEqual(['far-plain']);
    expect(dropped).toMatchObject([{ tool: 'deep', reason: expect.stringContaining('too deeply') }]);
  });

  test('check thousands of members without compilation', async () => {
    const properties = Object.fromEntries(
      Array.from({ length: 2_000 }, (_, index) => [`p${index}`, { type: 'string' }]),
    );
    const { registry } = await open({
      tools: [{ name: 'wide', inputSchema: { type: 'object', properties }, ...readOnly }],
    });
    expect(actionsOf(registry)).toEqual(['far-wide']);
    expect(await call(registry, 'far-wide', { p1999: 5 })).toMatchObject({
      ok: false,
      message: expect.stringContaining('p1999 must be string'),
    });
  });

  test.each([
    [{ required: ['a'] }, {}, 'a is required'],
    [{ properties: { a: {} }, additionalProperties: false }, { b: 1 }, 'b is not known here'],
    [{ properties: { a: { enum: ['x', 'y'] } } }, { a: 'z' }, 'a must be one of the allowed values'],
    [
      { properties: { a: { type: 'array', items: { type: ['integer', 'null'] }, maxItems: 2 } } },
      { a: [1, null, 2] },
      'a must have at most 2',
    ],
    [
      { properties: { a: { type: 'array', items: { type: ['integer', 'null'] } } } },
      { a: [1, 1.5] },
      'a[1] must be integer or null',
    ],
    [
      { properties: { a: { properties: { b: { type: 'number', minimum: 3 } } } } },
      { a: { b: 2 } },
      'a.b must be at least 3',
    ],
  ])('check inputs by the simple keywords of %j', async (schema, input, reason) => {
    const { registry } = await open({
      tools: [{ name: 'plain', inputSchema: { type: 'object', ...schema }, ...readOnly }],
    });
    expect(await call(registry, 'far-plain', input)).toMatchObject({
      ok: false,
      message: expect.stringContaining(reason),
    });
  });

  test.each([
    { properties: { a: { type: 'nonsense' } } },
    { properties: { a: { pattern: '(' } } },
    { $ref: 'https://example.com/schema' },
    { properties: { a: { description: 'half of a pair: \ud83d' } } },
    { properties: { '\ud83d': {} } },
  ])('leave out a tool with the schema %j', async (schema) => {
    const { registry } = await open({
      tools: [{ name: 'odd', inputSchema: { type: 'object', ...schema }, ...readOnly }, plainTool],
    });
    expect(actionsOf(registry)).toEqual(['far-plain']);
  });

  test('have one size limit for all tools of a server', async () => {
    // About 20 schemas of 50 kB fit into the limit of 1 MiB.
    const tools = Array.from({ length: 100 }, (_, index) => ({
      ...plainTool,
      name: `tool-${index}`,
      inputSchema: { type: 'object', description: 'x'.repeat(50_000) },
    }));
    const { registry } = await open({ tools });
    expect(actionsOf(registry).length).toBeGreaterThan(0);
    expect(actionsOf(registry).length).toBeLessThan(25);
  });
});

describe('an MCP server that misbehaves', () => {
  /** A tool call whose answer of this type never ends. */
  function endlessAnswer(type: string) {
    let bytes = 0;
    const disconnection = Promise.withResolvers<void>();
    const chunk = Buffer.from(`data: ${'x'.repeat(1024 * 1024)}\n`);
    const behaviour: Behaviour = {
      tools: [plainTool],
      call(_message, response) {
        response.writeHead(200, { 'content-type': type });
        response.once('close', () => disconnection.resolve());
        const timer = setInterval(() => {
          if (response.destroyed || bytes > 128 * 1024 * 1024) {
            clearInterval(timer);
            response.destroy();
            return;
          }
          // Count the bytes that the agent reads, not those buffered in this process.
          if (response.writableNeedDrain) return;
          bytes += chunk.length;
          response.write(chunk);
        }, 5);
      },
    };
    return { behaviour, disconnection: disconnection.promise, countBytes: () => bytes };
  }

  // The gateway refuses a request with half of a surrogate pair, so one such tool would fail every run.
  test('gets a long description cut between characters', async () => {
    const description = `${'x'.repeat(4_095)}\u{1f600}`;
    const { registry } = await open({ tools: [{ ...plainTool, description }] });
    expect(registry.tool('mcp_far-plain')?.definition.description.isWellFormed()).toBe(true);
  });

  test('cannot answer a call with endless JSON', async () => {
    const { behaviour, disconnection, countBytes } = endlessAnswer('application/json');
    const { registry } = await open(behaviour);
    const outcome = call(registry, 'far-plain', { text: 'x' });
    await disconnection;
    expect(countBytes()).toBeLessThan(64 * 1024 * 1024);
    expect(await outcome).toMatchObject({ ok: false });
  });

  test('cannot answer a call with an endless event', async () => {
    const { behaviour, disconnection, countBytes } = endlessAnswer('text/event-stream');
    const { registry } = await open(behaviour);
    // The client waits for another stream, so that the call would end at its deadline.
    void call(registry, 'far-plain', { text: 'x' });
    await disconnection;
    expect(countBytes()).toBeLessThan(64 * 1024 * 1024);
  });

  test('causes fewer than five listings with 500 list_changed notifications', async () => {
    const notification = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };
    const frame = `data: ${JSON.stringify(notification)}\n\n`;
    const stream = Promise.withResolvers<ServerResponse>();
    const { server } = await open({ tools: [plainTool], notify: (response) => stream.resolve(response) });
    const countLists = () => server.methods.filter((method) => method === 'tools/list').length;
    await expect.poll(countLists).toBe(1);
    (await stream.promise).write(frame.repeat(500));
    await expect.poll(countLists).toBeGreaterThan(1);
    // Long enough for 500 requests, if each notification caused one.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(countLists()).toBeLessThan(5);
  });

  test('cannot leak secrets of its configuration into the log', async () => {
    const lines: string[] = [];
    const secret = 'mcp-header-secret-0123456789';
    await open(
      {
        tools: [plainTool],
        before(request, response) {
          response
            .writeHead(500, { 'content-type': 'text/plain' })
            .end(`no entry with ${request.headers['x-api-key'] as string} ${'y'.repeat(200_000)}`);
          return true;
        },
      },
      { headers: { 'x-api-key': secret }, lines },
    );
    await expect
      .poll(() => lines.filter((line) => line.includes('cannot be reached')).length)
      .toBeGreaterThan(0);
    expect(lines.join('\n')).not.toContain(secret);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(32_000);
  });
});
