// A model attempts to leave its sandbox after a prompt injection. Without an approval no attempt has an
// effect; with one, the call does only what was approved. `vitest -u` writes the page with the table.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasBubblewrap } from '../../support/bubblewrap.ts';
import { openEscapeWorld, type EscapeWorld } from './escape-world.ts';
import { rows } from './escape-rows.ts';

const pageFile = join(import.meta.dirname, '../../../docs/decisions/2026-11-24-escapes.md');
const pageHead = [
  '# Escapes that an injected model tries',
  '',
  [
    'What `test/agent/sandbox/escapes.test.ts` tries against a running agent,',
    'as a model that a file or a page has injected.',
    'The test fails when a row gets through, and when this page differs from what it saw.',
    '*Nothing approved*: the agent denies each call that needs an approval.',
    '*The call approved*: it approves each of them, and the call then does only what was approved;',
    'the row names the limit that it tries.',
    'How the limits work is in [the decision about the sandbox](2026-11-23-sandbox.md).',
  ].join(' '),
  '',
  '| # | area | tried | stopped with nothing approved by | stopped with the call approved by |',
  '| --- | --- | --- | --- | --- |',
];

const table: { area: string; goal: string; unapproved: string; approved: string }[] = rows.map(
  ({ area, goal }) => ({ area, goal, unapproved: '', approved: '' }),
);

describe.skipIf(!hasBubblewrap)('an injected model', () => {
  let world: EscapeWorld;
  beforeAll(async () => {
    world = await openEscapeWorld();
  });
  afterAll(async () => {
    await world.close();
  });

  test('tries at least sixty escapes', () => {
    expect(rows.length).toBeGreaterThanOrEqual(60);
  });

  describe('without an approval', () => {
    beforeAll(() => world.start({ unattendedApprovals: 'deny' }));
    test.each(rows.map((row, index) => [`${row.area}: ${row.goal}`, row, index] as const))(
      'gets nothing from: %s',
      async (_title, row, index) => {
        const output = await world.attempt(row.attempt(world.facts));
        expect(await world.findBreaches(output)).toEqual([]);
        const isDenied = /needs an approval/.test(output);
        const [plugin = ''] = row.attempt(world.facts).tool.split('_');
        expect(isDenied || plugin !== 'shell').toBe(true);
        record(index, { unapproved: isDenied ? 'the approval' : `${plugin}: ${row.boundary ?? ''}` });
      },
    );
  });

  describe('with an approval of the call', () => {
    beforeAll(async () => {
      await world.start({ unattendedApprovals: 'approve' });
      // Fail here if the sandbox is missing, so that no row runs on the machine itself.
      const output = await world.attempt({ tool: 'shell_run', input: { command: 'cat /proc/1/comm' } });
      expect(output).toContain('bwrap');
    });
    const containedRows = rows
      .map((row, index) => ({ row, index }))
      .filter(({ row }) => row.boundary !== undefined);
    test.each(containedRows.map(({ row, index }) => [`${row.area}: ${row.goal}`, row, index] as const))(
      'stays within its limits: %s',
      async (_title, row, index) => {
        const output = await world.attempt(row.attempt(world.facts));
        expect(output).not.toMatch(/needs an approval|cannot be started|bwrap:/);
        expect(await world.findBreaches(output)).toEqual([]);
        record(index, { approved: row.boundary ?? '' });
      },
    );
  });

  test('is stopped by the limits that the page of escapes lists', async () => {
    await expect(page()).toMatchFileSnapshot(pageFile);
  });
});

function record(index: number, cells: Partial<(typeof table)[number]>): void {
  const row = table[index];
  if (row !== undefined) Object.assign(row, cells);
}

function page(): string {
  const lines = table.map(
    ({ area, goal, unapproved, approved }, index) =>
      `| ${index + 1} | ${area} | ${goal} | ${unapproved} | ${approved || 'does what was approved'} |`,
  );
  return `${[...pageHead, ...lines].join('\n')}\n`;
}
