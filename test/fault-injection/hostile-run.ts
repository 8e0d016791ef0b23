// Sends hostile bodies to every operation with a body and measures how long the server's event loop
// is blocked. hostile-bodies.ts prints the results; hostile-bodies.test.ts checks a part of them.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import type { WatchedServer, WatchedServers } from '../support/watched-servers.ts';
import { type HostileBody, hostileBodies, type HostileOptions, type Json } from './hostile-documents.ts';

export interface HostileOperation {
  operationId: string;
  surface: 'gateway' | 'agent';
  method: string;
  path: string;
  maxBytes: number;
  mediaTypes: readonly string[];
  /** The security scheme whose token is sent; undefined for none. */
  scheme: string | undefined;
  headers: Readonly<Record<string, string>>;
  examples: readonly Json[];
}

export interface Measurement {
  operationId: string;
  body: string;
  bytes: number;
  status: number;
  /**
   * The longest block of the event loop: the median over the runs, in milliseconds of its thread's
   * processor time, scaled to an idle machine.
   */
  blockedMs: number;
  /** The same by wall clock. */
  clockMs: number;
  runs: number;
}

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  example?: string | number;
  $ref?: string;
}
interface DeclaredOperation {
  operationId: string;
  security: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { example?: Json; examples?: Record<string, { value: Json }> }> };
  'x-max-body-bytes'?: number;
}

// The reference work of loop-watch.ts on two idle cores of 2026. Threads that share a core and its
// caches take up to three times as much processor time for it.
const idleReferenceMs = 4;
const defaultMaxBytes = 256 * 1024;

/** The operations of both servers that take a body. */
export function hostileOperations(): HostileOperation[] {
  return (['gateway', 'agent'] as const).flatMap((surface) => {
    const document = JSON.parse(
      readFileSync(new URL(`../../src/contract/${surface}/bundle.json`, import.meta.url), 'utf8'),
    ) as {
      paths: Record<string, Record<string, DeclaredOperation>>;
      components: { parameters?: Record<string, Parameter> };
    };
    const parameterOf = (parameter: Parameter): Parameter =>
      document.components.parameters?.[parameter.$ref?.split('/').at(-1) ?? ''] ?? parameter;
    return Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).flatMap(([method, declared]): HostileOperation[] => {
        if (declared.requestBody === undefined) return [];
        const parameters = (declared.parameters ?? []).map(parameterOf);
        return [
          {
            operationId: declared.operationId,
            surface,
            method: method.toUpperCase(),
            path: path.replace(/\{([^}]+)\}/g, (placeholder, name: string) =>
              name === 'sessionId'
                ? placeholder
                : String(parameters.find((parameter) => parameter.name === name)?.example ?? 'x'),
            ),
            maxBytes: declared['x-max-body-bytes'] ?? defaultMaxBytes,
            mediaTypes: Object.keys(declared.requestBody.content),
            scheme: declared.security.flatMap((requirement) => Object.keys(requirement))[0],
            headers: headersOf(parameters, declared.operationId),
            examples: [...examplesOf(declared), ...(providerExamples[declared.operationId] ?? [])],
          },
        ];
      }),
    );
  });
}

function headersOf(parameters: readonly Parameter[], operationId: string): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { name, in: place, required, example } of parameters) {
    if (place === 'header' && required === true && example !== undefined)
      headers[name.toLowerCase()] = String(example);
  }
  // The bodies of other operations name their model.
  if (operationId === 'ai.createLanguageModelAnswer') headers['ai-language-model-id'] = 'acme/ok';
  // A new key for each call; with a key the server also digests the body.
  if (parameters.some(({ name }) => name.toLowerCase() === 'idempotency-key'))
    headers['idempotency-key'] = '';
  return headers;
}

function examplesOf({ requestBody }: DeclaredOperation): Json[] {
  const media = requestBody?.content['application/json'];
  if (media === undefined) return [];
  return media.example === undefined
    ? Object.values(media.examples ?? {}).map(({ value }) => value)
    : [media.example];
}

const schema = {
  type: 'object',
  properties: { city: { type: 'string', description: 'A city.' } },
  required: ['city'],
};
const chatMessages: Json[] = [
  { role: 'system', content: 'Be brief.' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'The weather?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
    ],
  },
  {
    role: 'assistant',
    content: null,
    tool_calls: [
      { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } },
    ],
  },
  { role: 'tool', tool_call_id: 'call_1', content: 'Rain.' },
];
const chatTools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather.', parameters: schema } },
];
const modelPrompt: Json[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: [{ type: 'text', text: 'The weather?' }] },
  {
    role: 'assistant',
    content: [{ type: 'tool-call', toolCallId: 'call_1', toolName: 'get_weather', input: { city: 'Oslo' } }],
  },
  {
    role: 'tool',
    content: [
      {
        type: 'tool-result',
        toolCallId: 'call_1',
        toolName: 'get_weather',
        output: { type: 'text', value: 'Rain.' },
      },
    ],
  },
];
/**
 * A tool call and its JSON result, which provider packages serialize to strings in the request.
 * They are the first two items, since only the first two items of a list get hostile texts.
 */
const toolPrompt: Json[] = [
  modelPrompt[2] as Json,
  {
    role: 'tool',
    content: [
      {
        type: 'tool-result',
        toolCallId: 'call_1',
        toolName: 'get_weather',
        output: { type: 'json', value: { weather: 'Rain.' } },
      },
    ],
  },
];
const modelTools = [
  { type: 'function', name: 'get_weather', description: 'The weather.', inputSchema: schema },
];
// Azure OpenAI and Vertex AI have the formats of OpenAI, Google and Anthropic.
const models = ['acme/ok', 'anthropic/ok', 'google/ok', 'openai/ok', 'bedrock/ok', 'vertex/ok'];

const uiMessages = [
  { id: 'a', role: 'user', parts: [{ type: 'text', text: 'The weather?' }] },
  {
    id: 'b',
    role: 'assistant',
    parts: [
      {
        type: 'tool-get_weather',
        toolCallId: 'call_1',
        state: 'output-available',
        input: {},
        output: 'rain',
      },
    ],
  },
];

/**
 * Calls that the scripted provider can answer. Many of the contract's examples name models that the
 * test's gateway does not have.
 */
const providerExamples: Readonly<Record<string, Json[]>> = {
  'ai.createChatCompletion': models.map((model) => ({ model, messages: chatMessages, tools: chatTools })),
  'ai.createCompletion': models.map((model) => ({ model, prompt: 'function add(', suffix: '}' })),
  'ai.generateText': models.map((model) => ({
    model,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'The weather?' }] }],
    tools: [{ name: 'get_weather', input_schema: schema }],
  })),
  'ai.streamText': models.flatMap((model): Json[] => [
    { model, prompt: modelPrompt, tools: modelTools },
    { model, prompt: toolPrompt },
  ]),
  'ai.createLanguageModelAnswer': [{ prompt: modelPrompt, tools: modelTools }],
  'ai.streamUiMessage': models.map((model) => ({ model, messages: uiMessages, tools: modelTools })),
  'ai.createResponse': [
    {
      model: 'acme/ok',
      input: [{ role: 'user', content: [{ type: 'input_text', text: 'The weather?' }] }],
      instructions: 'Be brief.',
      tools: [{ type: 'function', name: 'get_weather', parameters: schema }],
    },
  ],
  'ai.createMessage': ['anthropic/ok', 'acme/ok'].map((model) => ({
    model,
    max_tokens: 100,
    system: 'Be brief.',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'The weather?' }] }],
    tools: [{ name: 'get_weather', input_schema: schema }],
  })),
  'ai.embedText': [
    { model: 'acme/ok', input: ['Good morning'] },
    { model: 'acme/ok', input: 'Good morning' },
  ],
  'ai.moderateContent': [{ model: 'acme/ok', input: ['Good morning'] }],
  'ai.rerankDocuments': [{ model: 'acme/ok', query: 'What?', documents: ['Good morning'] }],
  'ai.createImage': [{ model: 'acme/painter', prompt: 'A house.' }],
  'ai.synthesizeSpeech': [{ model: 'acme/speaker', text: 'Good morning.' }],
  'ai.transcribeAudio': [
    {
      model: 'acme/whisper',
      audio: 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA=',
      media_type: 'audio/wav',
    },
  ],
  'sessions.execute': [
    {
      instructions: 'Read it.',
      attachments: [
        { type: 'document', fileName: 'notes.md', contentType: 'text/markdown', content: 'Notes.' },
      ],
    },
  ],
  'sessions.prompt': [
    {
      text: 'Read it.',
      attachments: [
        {
          type: 'document',
          fileName: 'notes.bin',
          contentType: 'application/octet-stream',
          content: 'QUJD',
          encoding: 'base64',
        },
      ],
    },
  ],
};

// The limits of an input's own text and of all its attachments together.
const agentTextBytes = { instructions: 2 * 1024 * 1024, text: 2 * 1024 * 1024, content: 8 * 1024 * 1024 };

/** The bodies for the operation, as large as it accepts. */
export function bodiesFor(
  { surface, maxBytes, mediaTypes, examples }: HostileOperation,
  options: Pick<HostileOptions, 'few' | 'only'> = {},
): (HostileBody & { mediaType: string })[] {
  const maxTextBytes = surface === 'agent' ? agentTextBytes : {};
  const bodiesOf = (mediaType: string): HostileBody[] => {
    if (mediaType === 'application/json')
      return hostileBodies(examples, maxBytes, { ...options, maxTextBytes });
    return mediaType === 'multipart/form-data' ? hostileForms(maxBytes) : hostileQueries(maxBytes);
  };
  return mediaTypes.flatMap((mediaType) => {
    return bodiesOf(mediaType)
      .filter(({ name }) => options.only?.(name) ?? true)
      .map((body) => ({
        ...body,
        mediaType: mediaType === 'multipart/form-data' ? `${mediaType}; boundary=hostile` : mediaType,
      }));
  });
}

function hostileForms(maxBytes: number): HostileBody[] {
  const part = (head: string, content: string) =>
    `--hostile\r\nContent-Disposition: form-data; ${head}\r\n\r\n${content}\r\n`;
  const wholeBody = (content: string) =>
    Buffer.concat(
      [
        part('name="model"', 'acme/whisper'),
        part('name="file"; filename="a.wav"', content),
        '--hostile--\r\n',
      ].map((text) => Buffer.from(text)),
    );
  const budget = maxBytes - 300;
  const fill = (unit: string) => unit.repeat(Math.floor(budget / unit.length));
  return [
    { name: 'form: a large file', bytes: wholeBody(fill('RIFF')) },
    { name: 'form: line breaks', bytes: wholeBody(fill('\r\n')) },
    { name: 'form: incomplete boundaries', bytes: wholeBody(fill('\r\n--hostil')) },
    { name: 'form: hyphens', bytes: wholeBody(fill('-')) },
    { name: 'form: many parts', bytes: Buffer.from(fill(part('name="a"', ''))) },
    { name: 'form: a long field', bytes: Buffer.from(`${part('name="model"', fill('a'))}--hostile--\r\n`) },
    { name: 'form: a long head', bytes: Buffer.from(part(`name="${fill('a')}"`, 'a')) },
  ];
}

function hostileQueries(maxBytes: number): HostileBody[] {
  return ['a=1&', '%41', '%', '&'].map((unit) => ({
    name: `form: ${unit}`,
    bytes: Buffer.from(unit.repeat(Math.floor(maxBytes / unit.length))),
  }));
}

/** Sends the body once and returns the functions in which the server spent the most time. */
export async function profile(
  servers: WatchedServers,
  operation: HostileOperation,
  body: HostileBody & { mediaType: string },
): Promise<string[]> {
  const server = servers[operation.surface];
  const path = await pathOf(server, operation);
  await server.waitForIdle();
  await server.startProfile();
  await send(server, operation, { path, ...body });
  await server.waitForIdle();
  return server.stopProfile();
}

/**
 * Sends the body to an idle server `runs` times and takes the median; only once if the first run
 * stays below half of `limitMs`.
 */
export async function measure(
  servers: WatchedServers,
  operation: HostileOperation,
  body: HostileBody & { mediaType: string },
  { runs, limitMs }: { runs: number; limitMs: number },
): Promise<Measurement> {
  const server = servers[operation.surface];
  const blocks: number[] = [];
  const clocks: number[] = [];
  let status = 0;
  for (let run = 0; run < runs; run += 1) {
    const path = await pathOf(server, operation);
    servers.provider.reset();
    // The previous run left the server idle, except for creating a session.
    if (path !== operation.path) await server.waitForIdle();
    await server.reset();
    status = await send(server, operation, { path, ...body });
    const { blockedMs, clockMs } = await server.waitForIdle();
    const idleMs = blockedMs / Math.max((await server.referenceMs()) / idleReferenceMs, 1);
    blocks.push(idleMs);
    clocks.push(clockMs);
    if (run === 0 && idleMs < limitMs / 2) break;
  }
  return {
    operationId: operation.operationId,
    body: body.name,
    bytes: body.bytes.byteLength,
    status,
    blockedMs: median(blocks),
    clockMs: median(clocks),
    runs: blocks.length,
  };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;
}

/**
 * Creates a new session for each body, so that the history of a session does not affect the times.
 */
async function pathOf(server: WatchedServer, { path }: HostileOperation): Promise<string> {
  if (!path.includes('{sessionId}')) return path;
  const answer = await fetch(`${server.url}/api/sdk/sessions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${server.tokens['agentToken']}`, 'content-type': 'application/json' },
    body: '{}',
  });
  const text = await answer.text();
  const sessionId = /"(?:session_id|sessionId|id)":"([^"]+)"/.exec(text)?.[1];
  if (sessionId === undefined)
    throw new Error(`No session was created: ${answer.status} ${text.slice(0, 300)}`);
  return path.replace('{sessionId}', encodeURIComponent(sessionId));
}

/** The status once the answer is complete; 0 when the server closes the connection first. */
function send(
  server: WatchedServer,
  { method, headers, scheme }: HostileOperation,
  { path, bytes, mediaType }: { path: string; bytes: Buffer; mediaType: string },
): Promise<number> {
  const token = scheme === undefined ? undefined : server.tokens[scheme];
  return new Promise((resolve) => {
    const call = request(
      server.url + path,
      {
        method,
        agent: false,
        headers: {
          ...headers,
          ...('idempotency-key' in headers ? { 'idempotency-key': randomUUID() } : {}),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          'content-type': mediaType,
          'content-length': bytes.byteLength,
        },
      },
      (response) => {
        response.resume();
        response.on('close', () => resolve(response.statusCode ?? 0));
      },
    );
    call.on('error', () => resolve(0));
    call.end(bytes);
  });
}
