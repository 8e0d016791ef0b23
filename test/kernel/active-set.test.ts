import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ActiveSet } from '../../src/kernel/active-set.ts';

describe('ActiveSet', () => {
  test('has the members that were added and not deleted', () => {
    const set = new ActiveSet<string>();
    const [a, b, c, d] = [set.add('a'), set.add('b'), set.add('c'), set.add('d')];
    for (const entry of [b, d]) set.delete(entry);
    expect(set.members().sort()).toEqual(['a', 'c']);
    expect(set.size).toBe(2);
    for (const entry of [a, c]) set.delete(entry);
    expect(set.members()).toEqual([]);
  });

  test('ignores the second deletion of an entry', () => {
    const set = new ActiveSet<string>();
    const entry = set.add('a');
    set.add('b');
    set.delete(entry);
    set.add('c');
    set.delete(entry);
    expect(set.members().sort()).toEqual(['b', 'c']);
  });

  test('lists the members at the time of the call', () => {
    const set = new ActiveSet<string>();
    const entry = set.add('a');
    const members = set.members();
    set.delete(entry);
    expect(members).toEqual(['a']);
  });

  test('promotes less than 50 bytes of each deleted member', () => {
    const script = join(import.meta.dirname, 'active-set-heap.ts');
    const promotedBytes = Number(
      execFileSync(process.execPath, ['--expose-gc', script], { encoding: 'utf8' }),
    );
    // Each member has 1,000 bytes; a Map of V8 promotes 320 of them.
    expect(promotedBytes).toBeLessThan(50);
  });
});
