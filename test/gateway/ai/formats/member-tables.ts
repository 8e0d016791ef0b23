// Requests with one member each, for the tables of docs/guides/formats.md: the
// treatment of the member for a translated model.

export interface Probe {
  /** The row's name in the guide. */
  member: string;
  body: Record<string, unknown>;
}

export interface MemberTable {
  /** The heading above the table in the guide. */
  heading: string;
  path: string;
  /** Providers whose models are translated in this format, by the names of the columns. */
  columns: Readonly<Record<string, string>>;
  probes: readonly Probe[];
}

const schema = { type: 'object', properties: { city: { type: 'string' } } };
const png = 'iVBORw0KGgo=';
const pdf = 'JVBERg==';
const providers = {
  'OpenAI-compatible': 'acme',
  OpenAI: 'openai',
  Anthropic: 'claude',
  Google: 'gemini',
  local: 'local',
};

function withoutMembers(name: keyof typeof providers): Record<string, string> {
  return Object.fromEntries(Object.entries(providers).filter(([provider]) => provider !== name));
}

const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const messageTools = [{ name: 'f', input_schema: schema }];
const usedMembers = [
  { role: 'user', content: 'hi' },
  { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: {} }] },
];

const messageProbes: Probe[] = [
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
        ...usedMembers,
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
  ['`cache_control`', user([{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }])],
  [
    '`metadata`, `context_management`',
    { ...user('hi'), metadata: { user_id: 'a' }, context_management: { edits: [] } },
  ],
  ['`container`, `mcp_servers`', { ...user('hi'), container: 'a' }],
].map(([member, body]) => ({ member, body: { max_tokens: 100, ...(body as object) } }) as Probe);

const input = (content: unknown) => ({ input: [{ role: 'user', content }] });
const tools = [{ type: 'function', name: 'f', parameters: schema, strict: false }];

const responseProbes: Probe[] = [
  ['text, `instructions`, several turns', { instructions: 'Be brief.', ...input('hi') }],
  ['`input_image`', input([{ type: 'input_image', image_url: `data:image/png;base64,${png}` }])],
  [
    '`input_file`',
    input([{ type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` }]),
  ],
  ['stored files (`file_id`)', input([{ type: 'input_file', file_id: 'a' }])],
  ['`tools` of the type `function`', { ...input('hi'), tools }],
  ['`tools` of the type `custom`', { ...input('hi'), tools: [{ type: 'custom', name: 'f' }] }],
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
  ['`conversation`', { ...input('hi'), conversation: 'a' }],
  ['`prompt`', { ...input('hi'), prompt: { id: 'a' } }],
  ['`top_logprobs`', { ...input('hi'), top_logprobs: 2 }],
].map(([member, body]) => ({ member, body }) as Probe);

export const memberTables: readonly MemberTable[] = [
  {
    heading: '## Members of messages',
    path: '/v1/ai/messages',
    columns: withoutMembers('Anthropic'),
    probes: messageProbes,
  },
  {
    heading: '## Members of responses',
    path: '/v1/ai/responses',
    columns: withoutMembers('OpenAI'),
    probes: responseProbes,
  },
];

/** The table in Markdown. */
export function renderTable(
  { columns }: MemberTable,
  rows: readonly { member: string; outcomes: readonly string[] }[],
): string {
  const names = Object.keys(columns);
  return [
    `| member | ${names.join(' | ')} |`,
    `| --- |${' --- |'.repeat(names.length)}`,
    ...rows.map(({ member, outcomes }) => `| ${member} | ${outcomes.join(' | ')} |`),
  ].join('\n');
}
