// A model attempts to leave its sandbox after a prompt injection. Without an approval no attempt has an
// effect; with one, the call does only what was approved. The table is written to build/escapes.txt.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasBubblewrap } from '../../support/bubblewrap.ts';
import { openEscapeWorld, type EscapeWorld } from './escape-world.ts';
import { rows } from './escape-rows.ts';

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
    await writeTable();
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
        expect(await world.breaches(output)).toEqual([]);
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
      // No row runs on the machine itself, even if the sandbox were missing.
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
        expect(await world.breaches(output)).toEqual([]);
        record(index, { approved: row.boundary ?? '' });
      },
    );
  });
});

function record(index: number, cells: Partial<(typeof table)[number]>): void {
  const row = table[index];
  if (row !== undefined) Object.assign(row, cells);
}

async function writeTable(): Promise<void> {
  const lines = table.map(({ area, goal, unapproved, approved }, index) =>
    [
      String(index + 1).padStart(3),
      area.padEnd(12),
      goal.padEnd(58),
      unapproved.padEnd(46),
      approved === '' ? 'does what was approved' : approved,
    ].join('  '),
  );
  const head = [
    '  #',
    'area'.padEnd(12),
    'what was tried'.padEnd(58),
    'stopped without an approval by'.padEnd(46),
    'stopped with an approval by',
  ].join('  ');
  const folder = join(import.meta.dirname, '../../../build');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'escapes.txt'), `${[head, ...lines].join('\n')}\n`);
}
