// Lines that show the differences between two catalogs, one line per change.
import type { EntryChange, MemberChange, UpdatePlan } from '../../gateway/ai/index.ts';

export function describePlan({ changes, pins, refusals }: UpdatePlan): string[] {
  return [
    ...changes.flatMap(describeChange),
    ...pins.map(({ id, member }) => `= ${member} ${id} is pinned and stays.`),
    describeTotals(changes),
    ...refusals.map((refusal) => `Refused: ${refusal}`),
  ];
}

const marks = { added: '+', removed: '-', changed: '~' } as const;

function describeChange({ entry, id, change, members }: EntryChange): string[] {
  return [`${marks[change]} ${entry} ${id}`, ...members.map((member) => `    ${describeMember(member)}`)];
}

function describeMember({ member, before, after }: MemberChange): string {
  return `${member}: ${show(before)} -> ${show(after)}${describeFactor(before, after)}`;
}

// JSON.stringify does not escape DEL and the C1 control characters, which a terminal would obey.
function show(value: unknown): string {
  if (value === undefined) return 'none';
  return JSON.stringify(value).replace(/[\x7f-\x9f]/g, '?');
}

function describeFactor(before: unknown, after: unknown): string {
  if (typeof before !== 'number' || typeof after !== 'number' || before === 0) return '';
  return ` (x${Number((after / before).toPrecision(3))})`;
}

function describeTotals(changes: readonly EntryChange[]): string {
  if (changes.length === 0) return 'No changes.';
  const models = changes.filter(({ entry }) => entry === 'model');
  const count = (change: EntryChange['change']) =>
    models.filter((candidate) => candidate.change === change).length;
  const providers = changes.length - models.length;
  return `Models: ${count('added')} new, ${count('changed')} changed, ${count('removed')} removed. Providers: ${providers} changed.`;
}
