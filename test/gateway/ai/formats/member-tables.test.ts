// The table of docs/guides/format-members.md against a server and against the rules in the code.
// UPDATE_TABLES=1 writes the guide.
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { asRecord, parseJsonOrUndefined } from '../../../../src/kernel/json-value.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startTokenEndpoint, type TokenEndpoint } from '../../../support/token-endpoint.ts';
import { startAi, type World } from '../world.ts';
import { memberRules } from '../../../../src/gateway/ai/formats/member-rules.ts';
import { memberTables, providers, renderTable, type MemberTable } from './member-tables.ts';

const guide = new URL('../../../../docs/guides/format-members.md', import.meta.url);

const kindMembers: Readonly<Record<string, object>> = {
  azure: { api_key_env: 'AZURE_KEY' },
  bedrock: { region: 'eu-central-1', api_key_env: 'BEDROCK_KEY' },
  vertex: {
    project: 'acme',
    location: 'europe-west1',
    credentials: { type: 'service_account', key_env: 'GOOGLE_KEY_FILE' },
  },
};

let provider: ScriptedProvider;
let tokens: TokenEndpoint;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  tokens = await startTokenEndpoint();
  const kinds = {
    acme: 'openai-compatible',
    openai: 'openai',
    claude: 'anthropic',
    gemini: 'google',
    bedrock: 'bedrock',
    azure: 'azure',
    vertex: 'vertex',
  };
  world = await startAi({
    models: JSON.stringify({
      providers: Object.entries(kinds).map(([id, kind]): object => ({
        id,
        kind,
        name: id,
        base_url: provider.url,
        output_limit_member: 'max_tokens',
        ...kindMembers[kind],
      })),
      models: Object.keys(kinds).map((id) => ({
        id: `${id}/ok`,
        provider: id,
        // The SDK package translates by the family in the model's name.
        upstream_model: id === 'bedrock' ? 'anthropic.claude:0' : 'ok',
        rates: null,
        max_output_tokens: 1_000,
        reasoning: {
          efforts: [
            { id: 'low', name: 'Low' },
            { id: 'high', name: 'High' },
          ],
          default_effort: 'low',
        },
      })),
    }),
    env: { AZURE_KEY: 'key', BEDROCK_KEY: 'key', GOOGLE_KEY_FILE: tokens.keyFile },
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
  await tokens.close();
});

/**
 * `as sent` when the provider received the members unchanged in the format of the request,
 * `translated`, `warning` when the header or `warnings` of the answer names a member, or the status of the
 * rejection.
 */
async function outcomeOf(
  { path, upstream, headers = {} }: MemberTable,
  owner: string,
  body: object,
): Promise<string> {
  const model = owner === 'local' ? 'local/echo' : `${owner}/ok`;
  const callCount = provider.calls.length;
  const response = await world.post(path(model), { model, ...body }, { headers });
  const text = await response.text();
  if (response.status !== 200) return String(response.status);
  if (response.headers.has('x-townhall-warnings') || hasWarnings(text)) return 'warning';
  const call = provider.calls.at(callCount);
  const isNative = upstream !== undefined && call?.path.endsWith(upstream) === true;
  return isNative && isPassedThrough(JSON.parse(String(call.body)), body) ? 'as sent' : 'translated';
}

function hasWarnings(text: string): boolean {
  const { warnings } = asRecord(parseJsonOrUndefined(text));
  return Array.isArray(warnings) && warnings.length > 0;
}

// The gateway sets `stream_options` of streams itself, to request their usage.
function isPassedThrough(upstreamBody: Record<string, unknown>, body: object): boolean {
  return Object.entries(body)
    .filter(([name]) => name !== 'stream_options')
    .every(([name, value]) => JSON.stringify(upstreamBody[name]) === JSON.stringify(value));
}

async function rowsOf(table: MemberTable): Promise<string> {
  const rows = [];
  for (const { member, body } of table.probes) {
    const outcomes: string[] = [];
    for (const owner of Object.values(providers)) outcomes.push(await outcomeOf(table, owner, body));
    rows.push({ member, outcomes });
  }
  return renderTable(rows);
}

test.each(memberTables)('the guide matches the server: $heading', async (table) => {
  const expected = await rowsOf(table);
  const text = await readFile(guide, 'utf8');
  const [before = '', rest = ''] = text.split(`${table.heading}\n`);
  const existing = /^\|.*(?:\n\|.*)*/m.exec(rest)?.[0] ?? '';
  if (process.env['UPDATE_TABLES'] === '1')
    await writeFile(guide, `${before}${table.heading}\n${rest.replace(existing, () => expected)}`);
  else expect(existing).toBe(expected);
});

const tablesWithRules = memberTables.flatMap(({ heading, rules, probes }) =>
  rules === undefined ? [] : [{ heading, probes, ...memberRules[rules] }],
);

test.each(tablesWithRules)(
  'every rule of the code has a row: $heading',
  ({ probes, supported, hints, refusals }) => {
    const tableMembers = new Set(['model', ...probes.flatMap(({ body }) => Object.keys(body))]);
    expect([...supported, ...hints, ...refusals].filter((name) => !tableMembers.has(name))).toEqual([]);
  },
);

test.each(memberTables)(
  'Azure and Vertex AI treat members like OpenAI and Google: $heading',
  async (table) => {
    for (const { member, body } of table.probes)
      for (const [owner, twin] of [
        ['azure', 'openai'],
        ['vertex', 'gemini'],
      ] as const) {
        const outcome = await outcomeOf(table, owner, body);
        expect(outcome, `${member} on ${owner}`).toBe(await outcomeOf(table, twin, body));
      }
  },
);
