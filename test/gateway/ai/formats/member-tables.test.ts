// The tables of docs/guides/formats.md against the behavior of a server. UPDATE_TABLES=1 writes them.
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { startAi, type World } from '../world.ts';
import { memberTables, renderTable, type MemberTable } from './member-tables.ts';

const guide = new URL('../../../../docs/guides/formats.md', import.meta.url);

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const kinds = { acme: 'openai-compatible', openai: 'openai', claude: 'anthropic', gemini: 'google' };
  world = await startAi({
    models: JSON.stringify({
      providers: Object.entries(kinds).map(([id, kind]) => ({
        id,
        kind,
        name: id,
        base_url: provider.url,
        output_limit_member: 'max_tokens',
      })),
      models: Object.keys(kinds).map((id) => ({
        id: `${id}/ok`,
        provider: id,
        upstream_model: 'ok',
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
    env: {},
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});

/** `yes`, `warning` when the header names the member, or the status of the rejection. */
async function outcomeOf(path: string, owner: string, body: object): Promise<string> {
  const model = owner === 'local' ? 'local/echo' : `${owner}/ok`;
  const response = await world.post(path, { model, ...body });
  await response.text();
  if (response.status !== 200) return String(response.status);
  return response.headers.has('x-townhall-warnings') ? 'warning' : 'yes';
}

async function tableOf(table: MemberTable): Promise<string> {
  const rows = [];
  for (const { member, body } of table.probes) {
    const outcomes: string[] = [];
    for (const owner of Object.values(table.columns)) outcomes.push(await outcomeOf(table.path, owner, body));
    rows.push({ member, outcomes });
  }
  return renderTable(table, rows);
}

test.each(memberTables)('the guide matches the server: $heading', async (table) => {
  const expected = await tableOf(table);
  const text = await readFile(guide, 'utf8');
  const [before = '', rest = ''] = text.split(`${table.heading}\n`);
  const existing = /^\|.*(?:\n\|.*)*/m.exec(rest)?.[0] ?? '';
  if (process.env['UPDATE_TABLES'] === '1')
    await writeFile(guide, `${before}${table.heading}\n${rest.replace(existing, () => expected)}`);
  else expect(existing).toBe(expected);
});
