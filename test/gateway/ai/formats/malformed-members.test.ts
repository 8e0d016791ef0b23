// Nested members that are missing or of the wrong type, in formats of other APIs: the answer is a 400
// that names the member, never an error of the gateway or the provider.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { createDocumentGenerator } from '../generator.ts';
import { testResilience, startAi, type World } from '../world.ts';

type Json = Record<string, unknown>;

const owners = ['acme-one', 'acme-two', 'openai', 'gpt', 'claude', 'gemini', 'bedrock'] as const;
type Owner = (typeof owners)[number];

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const entry = (id: Owner, kind: string, overrides: object = {}) => ({
    id,
    kind,
    name: id,
    base_url: provider.url,
    output_limit_member: 'max_tokens',
    ...overrides,
  });
  world = await startAi({
    models: JSON.stringify({
      // Chat completions pass through to the first provider and are translated for the second.
      providers: [
        entry('acme-one', 'openai-compatible', { formats: ['chat', 'responses', 'embeddings', 'rerank'] }),
        entry('acme-two', 'openai-compatible', { formats: [] }),
        entry('openai', 'openai'),
        entry('gpt', 'openai', { formats: ['responses'] }),
        entry('claude', 'anthropic'),
        entry('gemini', 'google', { name: 'Google' }),
        entry('bedrock', 'bedrock', { region: 'eu-central-1', api_key_env: 'BEDROCK_KEY' }),
      ],
      models: owners.map((id) => ({
        id: `${id}/ok`,
        provider: id,
        upstream_model: 'ok',
        rates: { input: 1_000_000, output: 1_000_000 },
        max_output_tokens: 1_000,
        context_window: 1_000_000,
        inputs: ['text', 'image', 'audio', 'file'],
        modalities: ['text', 'stream', 'openai', 'embedding'],
      })),
    }),
    env: { BEDROCK_KEY: 'key' },
    resilience: testResilience,
    balance: 10n ** 15n,
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});

const schema = { type: 'object', properties: { city: { type: 'string' } } };
const picture = 'iVBORw0KGgo=';
const labels = { acme: { label: 'a' } };

const chatBody: Json = {
  messages: [
    { role: 'system', content: [{ type: 'text', text: 'Be brief.' }] },
    {
      role: 'user',
      name: 'ada',
      content: [
        { type: 'text', text: 'The weather?' },
        { type: 'image_url', image_url: { url: `data:image/png;base64,${picture}`, detail: 'auto' } },
        { type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } },
        { type: 'file', file: { file_data: 'data:application/pdf;base64,JVBERg==', filename: 'a.pdf' } },
      ],
    },
    {
      role: 'assistant',
      content: [{ type: 'refusal', refusal: 'No.' }],
      reasoning_content: 'Hm.',
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"city":"Oslo"}' } }],
    },
    { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'Rain.' }] },
  ],
  tools: [
    { type: 'function', function: { name: 'f', description: 'It.', parameters: schema, strict: true } },
  ],
  tool_choice: { type: 'function', function: { name: 'f' } },
  response_format: { type: 'json_schema', json_schema: { name: 'a', schema, strict: true } },
  stop: ['x'],
  temperature: 0.5,
  stream_options: { include_usage: true },
};

const responsesBody: Json = {
  instructions: 'Be brief.',
  input: [
    {
      type: 'message',
      role: 'user',
      content: [
        { type: 'input_text', text: 'The weather?' },
        { type: 'input_image', image_url: `data:image/png;base64,${picture}`, detail: 'auto' },
        { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERg==' },
      ],
    },
    { type: 'function_call', call_id: 'a', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'a', output: [{ type: 'input_text', text: 'Rain.' }] },
    { type: 'item_reference', id: 'b' },
    {
      type: 'additional_tools',
      role: 'developer',
      tools: [{ type: 'function', name: 'h', parameters: schema }],
    },
  ],
  prompt: { id: 'p', variables: { city: { type: 'input_text', text: 'Oslo' } } },
  tools: [
    { type: 'function', name: 'f', parameters: schema },
    { type: 'namespace', name: 'n', tools: [{ type: 'function', name: 'g', parameters: schema }] },
  ],
  text: { format: { type: 'json_schema', name: 'a', schema } },
  reasoning: { summary: 'auto' },
};

const messagesBody: Json = {
  max_tokens: 100,
  system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral', ttl: '1h' } }],
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'The weather?' },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture } },
        { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'a' }] } },
      ],
    },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: { city: 'Oslo' } }] },
    {
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 'a',
          content: [
            { type: 'text', text: 'Rain.' },
            { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERg==' } },
          ],
        },
      ],
    },
  ],
  tools: [
    { name: 'f', input_schema: schema },
    { type: 'bash_20250124', name: 'bash' },
  ],
  tool_choice: { type: 'tool', name: 'f' },
};

/** A request that is translated for models of other providers and not passed through. */
const translatedResponses: Json = {
  instructions: [{ role: 'developer', content: 'Be brief.' }],
  input: [
    {
      type: 'message',
      role: 'user',
      content: [
        { type: 'input_text', text: 'The weather?' },
        { type: 'input_image', image_url: `data:image/png;base64,${picture}`, detail: 'auto' },
        { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERg==' },
      ],
    },
    {
      type: 'reasoning',
      id: 'rs_1',
      summary: [{ type: 'summary_text', text: 'Hm.' }],
      // Replay metadata: {"options":{"anthropic":{"signature":"sig"}}}.
      encrypted_content: 'townhall.1.eyJvcHRpb25zIjp7ImFudGhyb3BpYyI6eyJzaWduYXR1cmUiOiJzaWcifX19',
    },
    { role: 'assistant', content: [{ type: 'output_text', text: 'I look.', annotations: [] }] },
    { type: 'function_call', id: 'fc_1', call_id: 'a', name: 'f', arguments: '{"city":"Oslo"}' },
    { type: 'custom_tool_call', call_id: 'b', name: 'g', input: 'Oslo' },
    { type: 'function_call_output', call_id: 'a', output: [{ type: 'input_text', text: 'Rain.' }] },
    { type: 'custom_tool_call_output', call_id: 'b', output: 'Rain.' },
  ],
  tools: [
    { type: 'function', name: 'f', description: 'It.', parameters: schema, strict: false },
    { type: 'custom', name: 'g', format: { type: 'text' } },
  ],
  tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
  text: { format: { type: 'json_schema', name: 'a', schema }, verbosity: 'low' },
  reasoning: { summary: 'auto' },
  include: ['reasoning.encrypted_content'],
  metadata: { a: 'b' },
  temperature: 0.5,
  top_p: 0.5,
  max_output_tokens: 100,
};

const mark = { cache_control: { type: 'ephemeral' } };
const translatedMessages: Json = {
  max_tokens: 100,
  system: [{ type: 'text', text: 'Be brief.', ...mark }],
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'The weather?', ...mark },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture } },
        { type: 'document', title: 'a.pdf', source: { type: 'text', media_type: 'text/plain', data: 'a' } },
        { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'a' }] } },
      ],
    },
    {
      role: 'assistant',
      content: [
        // Empty replay metadata: {}.
        { type: 'thinking', thinking: 'Hm.', signature: 'townhall.1.e30' },
        // The replay metadata of the call `a`: {"for":"a","options":{}}.
        { type: 'redacted_thinking', data: 'townhall.1.eyJmb3IiOiJhIiwib3B0aW9ucyI6e319' },
        { type: 'text', text: 'I look.' },
        { type: 'tool_use', id: 'a', name: 'f', input: { city: 'Oslo' } },
      ],
    },
    {
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 'a',
          is_error: false,
          content: [{ type: 'text', text: 'Rain.' }],
        },
        { type: 'text', text: 'And now?' },
      ],
    },
  ],
  tools: [{ type: 'custom', name: 'f', description: 'It.', input_schema: schema, ...mark }],
  tool_choice: { type: 'tool', name: 'f' },
  thinking: { type: 'enabled', budget_tokens: 1_024 },
  output_config: { effort: 'high', format: { type: 'json_schema', schema } },
  stop_sequences: ['x'],
  metadata: { user_id: 'a' },
  temperature: 0.5,
  top_k: 5,
};

const outputParts: Json[] = [
  { type: 'text', text: 'Rain.', providerOptions: labels },
  { type: 'file', mediaType: 'image/png', filename: 'a.png', data: { type: 'data', data: picture } },
  { type: 'file', mediaType: 'image/png', data: { type: 'url', url: 'https://a.example/b.png' } },
  { type: 'file', mediaType: 'text/plain', data: { type: 'text', text: 'a' } },
  {
    type: 'file',
    mediaType: 'application/pdf',
    data: { type: 'reference', reference: { openai: 'file_1' } },
  },
  { type: 'file-data', data: 'JVBERg==', mediaType: 'application/pdf', filename: 'a.pdf' },
  { type: 'file-url', url: 'https://a.example/b.pdf', mediaType: 'application/pdf' },
  { type: 'file-id', fileId: 'file_1', mediaType: 'application/pdf' },
  { type: 'file-id', fileId: { openai: 'file_1' } },
  { type: 'image-data', data: picture, mediaType: 'image/png' },
  { type: 'image-url', url: 'https://a.example/b.png' },
  { type: 'image-file-id', fileId: 'file_1' },
  { type: 'custom', providerOptions: labels },
];

/** A request in the AI SDK's format, with the part as a tool result. */
const streamBody = (part: Json): Json => ({
  prompt: [
    { role: 'system', content: 'Be brief.', providerOptions: labels },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'The weather?' },
        { type: 'file', mediaType: 'image/png', data: { type: 'data', data: picture }, filename: 'a.png' },
        { type: 'file', mediaType: 'image/png', data: { type: 'url', url: 'https://a.example/b.png' } },
        { type: 'file', mediaType: 'image/png', data: picture },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'Hm.', providerOptions: labels },
        { type: 'tool-call', toolCallId: 'a', toolName: 'f', input: { city: 'Oslo' } },
        { type: 'tool-call', toolCallId: 'b', toolName: 'f', input: { city: 'Oslo' } },
      ],
    },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', toolCallId: 'a', toolName: 'f', output: { type: 'content', value: [part] } },
        {
          type: 'tool-result',
          toolCallId: 'b',
          toolName: 'f',
          output: { type: 'json', value: { rain: true } },
        },
      ],
    },
  ],
  tools: [{ type: 'function', name: 'f', inputSchema: schema, inputExamples: [{ input: { city: 'a' } }] }],
  toolChoice: { type: 'tool', toolName: 'f' },
  responseFormat: { type: 'json', schema, name: 'a' },
  providerOptions: { acme: { user: 'a' } },
});

interface Case {
  path: string;
  owner: Owner;
  body: Json;
}

const cases: Case[] = [
  ...owners.map((owner) => ({
    path: 'chat/completions',
    owner,
    body: chatBody,
  })),
  ...(['acme-one', 'openai'] as const).map((owner) => ({ path: 'responses', owner, body: responsesBody })),
  { path: 'messages', owner: 'claude', body: messagesBody },
  ...(['acme-one', 'acme-two', 'openai', 'gpt', 'gemini', 'bedrock'] as const).map((owner) => ({
    path: 'messages',
    owner,
    body: translatedMessages,
  })),
  ...(['acme-two', 'claude', 'gemini', 'bedrock'] as const).map((owner) => ({
    path: 'responses',
    owner,
    body: translatedResponses,
  })),
  ...(['acme-one', 'openai', 'gpt', 'claude', 'gemini', 'bedrock'] as const).flatMap((owner) =>
    outputParts.flatMap((part) => [
      { path: 'stream', owner, body: streamBody(part) },
      { path: 'language-model', owner, body: streamBody(part) },
    ]),
  ),
];

const absentValue = Symbol('absent');
const replacements: readonly unknown[] = [
  absentValue,
  null,
  7,
  true,
  'x',
  '',
  [],
  [null],
  [7],
  {},
  { toString: 1 },
  { type: { toString: 1 } },
];

type Path = readonly (string | number)[];

/** The paths of all members and items within the value. */
function pathsIn(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [];
  const entries: [string | number, unknown][] = Array.isArray(value)
    ? [...value.entries()]
    : Object.entries(value);
  return entries.flatMap(([name, member]) => [[...path, name], ...pathsIn(member, [...path, name])]);
}

/** A copy of the value with the replacement at the path. */
function withReplacement(value: unknown, [name, ...rest]: Path, replacement: unknown): unknown {
  if (name === undefined) return replacement;
  const isRemoved = rest.length === 0 && replacement === absentValue;
  if (Array.isArray(value)) {
    const [index, items] = [Number(name), value as unknown[]];
    if (isRemoved) return items.toSpliced(index, 1);
    return items.with(index, withReplacement(items[index], rest, replacement));
  }
  const { [name]: member, ...others } = value as Json;
  return isRemoved ? others : { ...others, [name]: withReplacement(member, rest, replacement) };
}

async function send({ path, owner }: Case, body: object) {
  const model = `${owner}/ok`;
  const headers = {
    'ai-language-model-specification-version': '4',
    'ai-language-model-id': model,
    'ai-language-model-streaming': 'false',
  };
  const response = await world.post(
    `/v1/ai/${path}`,
    { ...body, model },
    { headers: path === 'language-model' ? headers : {} },
  );
  return { status: response.status, text: await response.text() };
}

/** Describes how the answer breaks the promise; undefined for a correct answer. */
function problemOf({ status, text }: { status: number; text: string }): string | undefined {
  if (status >= 500 || status === 429) return `${status} ${text.slice(0, 200)}`;
  if (status === 400 && !/"param":\s*"/.test(text)) return `names no member: ${text.slice(0, 200)}`;
  if (status === 200 && /"upstream_failed"|"internal_error"/.test(text)) return `200 ${text.slice(0, 300)}`;
  return undefined;
}

// All combinations would be about 210,000.
const sampleCount = Number(process.env['MALFORMED_SAMPLES'] ?? 1_500);
const seed = 20_261_122;

test.each([...new Set(cases.map(({ path }) => path))])(
  'the original request is valid in %s',
  async (path) => {
    const statuses = new Set<number>();
    for (const original of cases.filter((candidate) => candidate.path === path))
      statuses.add((await send(original, original.body)).status);
    expect(statuses).toContain(200);
    statuses.delete(200);
    // Some models accept no files in tool results.
    statuses.delete(422);
    expect([...statuses]).toEqual([]);
  },
);

test('a malformed member never causes an error of the gateway', { timeout: 600_000 }, async () => {
  const { below: randomBelow } = createDocumentGenerator(seed);
  const pick = <T>(items: readonly T[]): T => items[randomBelow(items.length)] as T;
  const problems = new Set<string>();
  for (let index = 0; index < sampleCount; index += 1) {
    const original = pick(cases);
    const path = pick(pathsIn(original.body));
    const replacement = pick(replacements);
    const body = withReplacement(original.body, path, replacement) as object;
    const problem = problemOf(await send(original, body));
    if (problem === undefined) continue;
    const value = replacement === absentValue ? 'absent' : JSON.stringify(replacement);
    problems.add(`${original.path} ${original.owner} ${path.join('.')} = ${value}: ${problem}`);
  }
  expect([...problems]).toEqual([]);
});
