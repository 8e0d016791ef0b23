// Adds members of 1,000 bytes and deletes the oldest one while there are more than 32, with collections of the
// young generation in between. Prints how many bytes each member left in the old generation. Needs
// `--expose-gc`.
import { getHeapSpaceStatistics } from 'node:v8';
import { ActiveSet, type ActiveSetEntry } from '../../src/kernel/active-set.ts';

const memberCount = 50_000;
const collect = globalThis.gc as (options?: { type: 'minor' }) => void;
function oldBytes(): number {
  const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space');
  if (space === undefined) throw new Error('V8 has no heap space named "old_space".');
  return space.space_used_size;
}

const set = new ActiveSet<object>();
const entries: ActiveSetEntry<object>[] = [];
collect();
const bytesBefore = oldBytes();
for (let count = 1; count <= memberCount; count += 1) {
  entries.push(set.add(Array.from({ length: 120 }, () => count)));
  if (entries.length > 32) set.delete(entries.shift() as ActiveSetEntry<object>);
  if (count % 5_000 === 0) collect({ type: 'minor' });
}
process.stdout.write(((oldBytes() - bytesBefore) / memberCount).toFixed(0));
