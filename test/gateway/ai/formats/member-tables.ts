// Requests with one member each, for the table of docs/guides/format-members.md: how the member reaches the
// model of each kind of provider.
import type { memberRules } from '../../../../src/gateway/ai/formats/member-rules.ts';

export interface Probe {
  /** The row's name in the guide. */
  member: string;
  body: Record<string, unknown>;
}

export interface MemberTable {
  /** The heading above the rows of the format in the guide. */
  heading: string;
  /** The path for a model. */
  path(model: string): string;
  /** The end of the path of providers that support the format; absent if requests are always translated. */
  upstream?: string;
  /** Headers of each request. */
  headers?: Readonly<Record<string, string>>;
  /** The format's name in the code; absent if the contract defines the types of its members. */
  rules?: keyof typeof memberRules;
  probes: readonly Probe[];
}

const schema = { type: 'object', properties: { city: { type: 'string' } } };
const png = 'iVBORw0KGgo=';
const pdf = 'JVBERg==';

/** The provider of each column, by the column's heading. */
export const providers = {
  'OpenAI-compatible': 'acme',
  OpenAI: 'openai',
  Anthropic: 'claude',
  Google: 'gemini',
  'Anthropic on Bedrock': 'bedrock',
  local: 'local',
} as const;

const toProbes = (rows: readonly [member: string, body: object][]): Probe[] =>
  rows.map(([member, body]) => ({ member, body: { ...body } }));

const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const messageTools = [{ name: 'f', input_schema: schema }];
const toolCallTurns = [
  { role: 'user', content: 'hi' },
  { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: {} }] },
];

const messageProbes = toProbes([
  ['text, `system`, several turns', { system: 'Be brief.', ...user('hi') }],
  [
    'images in base64',
    user([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } }]),
  ],
  [
    'documents in base64',
    user([{ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: pdf } }]),
  ],
  [
    'documents of text',
    user([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a' } }]),
  ],
  ['stored files (`file_id`)', user([{ type: 'document', source: { type: 'file', file_id: 'a' } }])],
  ['`search_result`', user([{ type: 'search_result', source: 'a', title: 'a', content: [] }])],
  ['`tools` with an `input_schema`', { ...user('hi'), tools: messageTools }],
  [
    '`tool_result` with text',
    {
      messages: [
        ...toolCallTurns,
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'x' }] },
      ],
    },
  ],
  [
    'tools of Anthropic (`bash_…`, `text_editor_…`)',
    { ...user('hi'), tools: [{ type: 'bash_20250124', name: 'bash' }] },
  ],
  ['`tool_choice`', { ...user('hi'), tools: messageTools, tool_choice: { type: 'tool', name: 'f' } }],
  [
    '`disable_parallel_tool_use`',
    { ...user('hi'), tools: messageTools, tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
  ],
  ['`output_config.format`', { ...user('hi'), output_config: { format: { type: 'json_schema', schema } } }],
  ['`output_config.effort` that the model has', { ...user('hi'), output_config: { effort: 'high' } }],
  ['`output_config.effort` that it lacks', { ...user('hi'), output_config: { effort: 'medium' } }],
  ['`thinking` with a budget', { ...user('hi'), thinking: { type: 'enabled', budget_tokens: 1_024 } }],
  [
    '`thinking` of earlier turns',
    {
      messages: [
        { role: 'user', content: 'a' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'b', signature: 'c' },
            { type: 'text', text: 'd' },
          ],
        },
        { role: 'user', content: 'e' },
      ],
    },
  ],
  ['`stop_sequences`', { ...user('hi'), stop_sequences: ['x'] }],
  ['`temperature`, `top_p`', { ...user('hi'), temperature: 0.5, top_p: 0.5 }],
  ['`top_k`', { ...user('hi'), top_k: 5 }],
  ['`cache_control` of a block', user([{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }])],
  ['`cache_control` of the request', { ...user('hi'), cache_control: { type: 'ephemeral' } }],
  [
    '`metadata`, `context_management`',
    { ...user('hi'), metadata: { user_id: 'a' }, context_management: { edits: [] } },
  ],
  ['`diagnostics`', { ...user('hi'), diagnostics: {} }],
  ['`service_tier: "auto"`', { ...user('hi'), service_tier: 'auto' }],
  ['`output_format`', { ...user('hi'), output_format: { type: 'json_schema', schema } }],
  ['`stream`', { ...user('hi'), stream: true }],
  ['`container`, `mcp_servers`', { ...user('hi'), container: 'a' }],
]).map(({ member, body }) => ({ member, body: { max_tokens: 100, ...body } }));

const input = (content: unknown) => ({ input: [{ role: 'user', content }] });
const tools = [{ type: 'function', name: 'f', parameters: schema, strict: false }];

const responseProbes = toProbes([
  ['text, `instructions`, several turns', { instructions: 'Be brief.', ...input('hi') }],
  ['`input_image`', input([{ type: 'input_image', image_url: `data:image/png;base64,${png}` }])],
  [
    '`input_file`',
    input([{ type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` }]),
  ],
  ['stored files (`file_id`)', input([{ type: 'input_file', file_id: 'a' }])],
  ['`tools` of the type `function`', { ...input('hi'), tools }],
  ['`tools` of the type `custom`', { ...input('hi'), tools: [{ type: 'custom', name: 'f' }] }],
  ['`tools` of the type `namespace`', { ...input('hi'), tools: [{ type: 'namespace', name: 'crm', tools }] }],
  [
    '`custom` with a grammar',
    {
      ...input('hi'),
      tools: [{ type: 'custom', name: 'f', format: { type: 'grammar', syntax: 'lark', definition: 'a' } }],
    },
  ],
  ['other `tools` (`local_shell`, `web_search`)', { ...input('hi'), tools: [{ type: 'local_shell' }] }],
  ['`tool_choice`', { ...input('hi'), tools, tool_choice: { type: 'function', name: 'f' } }],
  ['`parallel_tool_calls: false`', { ...input('hi'), tools, parallel_tool_calls: false }],
  [
    '`text.format` with a schema',
    { ...input('hi'), text: { format: { type: 'json_schema', name: 'a', schema } } },
  ],
  ['`text.format` `json_object`', { ...input('Answer in JSON.'), text: { format: { type: 'json_object' } } }],
  ['`text.verbosity`', { ...input('hi'), text: { verbosity: 'low' } }],
  ['`reasoning.effort` that the model has', { ...input('hi'), reasoning: { effort: 'high' } }],
  ['`reasoning.effort` that it lacks', { ...input('hi'), reasoning: { effort: 'medium' } }],
  [
    '`reasoning` items of earlier turns',
    {
      input: [
        { role: 'user', content: 'a' },
        { type: 'reasoning', summary: [{ type: 'summary_text', text: 'b' }] },
        { role: 'assistant', content: 'c' },
        { role: 'user', content: 'd' },
      ],
    },
  ],
  ['`temperature`, `top_p`', { ...input('hi'), temperature: 0.5, top_p: 0.5 }],
  [
    '`metadata`, `user`, `prompt_cache_key`',
    { ...input('hi'), metadata: { a: 'b' }, user: 'a', prompt_cache_key: 'a' },
  ],
  ['`max_output_tokens`', { ...input('hi'), max_output_tokens: 50 }],
  [
    '`presence_penalty`, `frequency_penalty`',
    { ...input('hi'), presence_penalty: 0.5, frequency_penalty: 0.5 },
  ],
  ['`include` of encrypted reasoning', { ...input('hi'), include: ['reasoning.encrypted_content'] }],
  ['`stream`', { ...input('hi'), stream: true }],
  ['`stream_options`', { ...input('hi'), stream: true, stream_options: { include_obfuscation: false } }],
  ['`max_tool_calls`', { ...input('hi'), max_tool_calls: 1 }],
  [
    '`client_metadata`, `safety_identifier`',
    { ...input('hi'), client_metadata: { a: 'b' }, safety_identifier: 'a' },
  ],
  ['`prompt_cache_retention`', { ...input('hi'), prompt_cache_retention: '24h' }],
  ['`service_tier: "default"`', { ...input('hi'), service_tier: 'default' }],
  ['`service_tier: "flex"`', { ...input('hi'), service_tier: 'flex' }],
  ['`truncation: "auto"`', { ...input('hi'), truncation: 'auto' }],
  ['`store: false`, `background: false`', { ...input('hi'), store: false, background: false }],
  ['`conversation`', { ...input('hi'), conversation: 'a' }],
  ['`prompt`', { ...input('hi'), prompt: { id: 'a' } }],
  ['`top_logprobs`', { ...input('hi'), top_logprobs: 2 }],
]);

const chat = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const chatTools = [{ type: 'function', function: { name: 'f', parameters: schema } }];
const jsonSchema = { type: 'json_schema', json_schema: { name: 'a', schema } };

const chatProbes = toProbes([
  [
    'text, system message, several turns',
    { messages: [{ role: 'system', content: 'Be brief.' }, ...chat('hi').messages] },
  ],
  ['images in base64', chat([{ type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } }])],
  [
    '`detail` of an image',
    chat([{ type: 'image_url', image_url: { url: `data:image/png;base64,${png}`, detail: 'low' } }]),
  ],
  [
    'files in base64',
    chat([{ type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` } }]),
  ],
  ['audio in base64', chat([{ type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } }])],
  ['names of speakers', { messages: [{ role: 'user', name: 'ann', content: 'hi' }] }],
  ['`tools` of the type `function`', { ...chat('hi'), tools: chatTools }],
  ['`tools` of the type `custom`', { ...chat('hi'), tools: [{ type: 'custom', custom: { name: 'f' } }] }],
  ['`tool_choice`', { ...chat('hi'), tools: chatTools, tool_choice: 'required' }],
  ['`parallel_tool_calls: false`', { ...chat('hi'), tools: chatTools, parallel_tool_calls: false }],
  ['`response_format` with a schema', { ...chat('hi'), response_format: jsonSchema }],
  [
    '`response_format` `json_object`',
    { ...chat('Answer in JSON.'), response_format: { type: 'json_object' } },
  ],
  ['`reasoning_effort` that the model has', { ...chat('hi'), reasoning_effort: 'high' }],
  ['`reasoning_effort` that it lacks', { ...chat('hi'), reasoning_effort: 'medium' }],
  ['`max_tokens`', { ...chat('hi'), max_tokens: 50 }],
  ['`max_completion_tokens`', { ...chat('hi'), max_completion_tokens: 50 }],
  ['`temperature`, `top_p`', { ...chat('hi'), temperature: 0.5, top_p: 0.5 }],
  ['`top_k`', { ...chat('hi'), top_k: 5 }],
  [
    '`presence_penalty`, `frequency_penalty`',
    { ...chat('hi'), presence_penalty: 0.5, frequency_penalty: 0.5 },
  ],
  ['`seed`', { ...chat('hi'), seed: 1 }],
  ['`stop`', { ...chat('hi'), stop: ['x'] }],
  ['`n: 1`', { ...chat('hi'), n: 1 }],
  ['`n: 2`', { ...chat('hi'), n: 2 }],
  ['`logprobs`', { ...chat('hi'), logprobs: true }],
  ['`logit_bias`', { ...chat('hi'), logit_bias: { '1': 1 } }],
  ['`modalities: ["text"]`', { ...chat('hi'), modalities: ['text'] }],
  ['`service_tier: "auto"`', { ...chat('hi'), service_tier: 'auto' }],
  ['`service_tier: "flex"`', { ...chat('hi'), service_tier: 'flex' }],
  [
    '`stream`, `stream_options.include_usage`',
    { ...chat('hi'), stream: true, stream_options: { include_usage: true } },
  ],
  ['`cache_control` of a part', chat([{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }])],
  [
    '`user`, `metadata`, `store`, `safety_identifier`',
    { ...chat('hi'), user: 'a', metadata: { a: 'b' }, store: false, safety_identifier: 'a' },
  ],
  [
    '`prompt_cache_key`, `prompt_cache_retention`',
    { ...chat('hi'), prompt_cache_key: 'a', prompt_cache_retention: '24h' },
  ],
]);

const contents = (...parts: unknown[]) => ({ contents: [{ role: 'user', parts }] });
const generate = (config: object) => ({ ...contents({ text: 'hi' }), generationConfig: config });
const declarations = [{ functionDeclarations: [{ name: 'f', parametersJsonSchema: schema }] }];

const geminiProbes = toProbes([
  [
    'text, `systemInstruction`',
    { ...contents({ text: 'hi' }), systemInstruction: { parts: [{ text: 'Be brief.' }] } },
  ],
  ['images in base64', contents({ inlineData: { mimeType: 'image/png', data: png } })],
  ['files in base64', contents({ inlineData: { mimeType: 'application/pdf', data: pdf } })],
  ['`functionDeclarations`', { ...contents({ text: 'hi' }), tools: declarations }],
  ['`googleSearch`, `codeExecution`', { ...contents({ text: 'hi' }), tools: [{ googleSearch: {} }] }],
  [
    '`toolConfig`',
    {
      ...contents({ text: 'hi' }),
      tools: declarations,
      toolConfig: { functionCallingConfig: { mode: 'ANY' } },
    },
  ],
  ['`maxOutputTokens`', generate({ maxOutputTokens: 50 })],
  ['`temperature`, `topP`', generate({ temperature: 0.5, topP: 0.5 })],
  ['`topK`', generate({ topK: 5 })],
  ['`stopSequences`', generate({ stopSequences: ['x'] })],
  ['`seed`', generate({ seed: 1 })],
  ['`presencePenalty`, `frequencyPenalty`', generate({ presencePenalty: 0.5, frequencyPenalty: 0.5 })],
  [
    '`responseMimeType` with a schema',
    generate({ responseMimeType: 'application/json', responseJsonSchema: schema }),
  ],
  ['`responseMimeType` without a schema', generate({ responseMimeType: 'application/json' })],
  ['`thinkingLevel` that the model has', generate({ thinkingConfig: { thinkingLevel: 'HIGH' } })],
  ['`thinkingLevel` that it lacks', generate({ thinkingConfig: { thinkingLevel: 'MEDIUM' } })],
  ['`thinkingBudget`', generate({ thinkingConfig: { thinkingBudget: 1_024 } })],
  ['`candidateCount: 2`', generate({ candidateCount: 2 })],
  ['`responseModalities: ["IMAGE"]`', generate({ responseModalities: ['IMAGE'] })],
  ['`cachedContent`', { ...contents({ text: 'hi' }), cachedContent: 'cachedContents/a' }],
  ['`safetySettings`, `labels`', { ...contents({ text: 'hi' }), safetySettings: [], labels: { a: 'b' } }],
]);

const prompt = (...content: unknown[]) => ({ prompt: [{ role: 'user', content }] });
const hi = prompt({ type: 'text', text: 'hi' });
const sdkTools = [{ type: 'function', name: 'f', inputSchema: schema }];
const inlineFile = (mediaType: string, data: string) => prompt({ type: 'file', mediaType, data });
const toolCallMessages = [
  { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'f', input: {} }] },
  {
    role: 'tool',
    content: [
      { type: 'tool-result', toolCallId: 'a', toolName: 'f', output: { type: 'json', value: { a: 'b' } } },
    ],
  },
];

const languageModelProbes = toProbes([
  [
    'text, system message, several turns',
    { prompt: [{ role: 'system', content: 'Be brief.' }, ...hi.prompt] },
  ],
  ['images in base64', inlineFile('image/png', png)],
  ['files in base64', inlineFile('application/pdf', pdf)],
  ['audio in base64', inlineFile('audio/wav', 'UklGRg==')],
  ['`tools` of the type `function`', { ...hi, tools: sdkTools }],
  [
    '`tools` of a provider',
    { ...hi, tools: [{ type: 'provider', id: 'anthropic.bash_20250124', name: 'bash', args: {} }] },
  ],
  ['`tool-call` and `tool-result`', { prompt: [...hi.prompt, ...toolCallMessages], tools: sdkTools }],
  ['`toolChoice`', { ...hi, tools: sdkTools, toolChoice: { type: 'required' } }],
  [
    '`reasoning` of earlier turns',
    {
      prompt: [
        ...hi.prompt,
        {
          role: 'assistant',
          content: [
            { type: 'reasoning', text: 'b' },
            { type: 'text', text: 'c' },
          ],
        },
        ...hi.prompt,
      ],
    },
  ],
  ['`responseFormat` with a schema', { ...hi, responseFormat: { type: 'json', schema } }],
  [
    '`responseFormat` without a schema',
    { ...prompt({ type: 'text', text: 'Answer in JSON.' }), responseFormat: { type: 'json' } },
  ],
  ['`reasoning` that the model has', { ...hi, reasoning: 'high' }],
  ['`reasoning` that it lacks', { ...hi, reasoning: 'medium' }],
  ['`maxOutputTokens`', { ...hi, maxOutputTokens: 50 }],
  ['`temperature`, `topP`', { ...hi, temperature: 0.5, topP: 0.5 }],
  ['`topK`', { ...hi, topK: 5 }],
  ['`presencePenalty`, `frequencyPenalty`', { ...hi, presencePenalty: 0.5, frequencyPenalty: 0.5 }],
  ['`stopSequences`', { ...hi, stopSequences: ['x'] }],
  ['`seed`', { ...hi, seed: 1 }],
]);

export const memberTables: readonly MemberTable[] = [
  {
    heading: '## The language-model format',
    path: () => '/v1/ai/language-model',
    headers: { 'ai-language-model-streaming': 'false' },
    probes: languageModelProbes,
  },
  {
    heading: '## Chat completions',
    path: () => '/v1/ai/chat/completions',
    upstream: '/chat/completions',
    rules: 'chat',
    probes: chatProbes,
  },
  {
    heading: '## Responses',
    path: () => '/v1/ai/responses',
    upstream: '/responses',
    rules: 'responses',
    probes: responseProbes,
  },
  {
    heading: '## Messages',
    path: () => '/v1/ai/messages',
    upstream: '/messages',
    rules: 'messages',
    probes: messageProbes,
  },
  {
    heading: '## Gemini',
    path: (model) => `/v1beta/models/${encodeURIComponent(model)}:generateContent`,
    probes: geminiProbes,
  },
];

/** The rows of one format in Markdown. */
export function renderTable(rows: readonly { member: string; outcomes: readonly string[] }[]): string {
  const names = Object.keys(providers);
  return [
    `| member | ${names.join(' | ')} |`,
    `| --- |${' --- |'.repeat(names.length)}`,
    ...rows.map(({ member, outcomes }) => `| ${member} | ${outcomes.join(' | ')} |`),
  ].join('\n');
}
