// The members of a JSON object by their bytes, to change some and keep all others.
import { describe, expect, test } from 'vitest';
import { applyEdits, topLevelMembers } from '../../../../src/gateway/ai/upstream/json-members.ts';
import { createEventCounter } from '../../../../src/gateway/ai/formats/passthrough/usage.ts';
import { chat } from '../../../../src/gateway/ai/formats/passthrough/formats.ts';
import type { Bill } from '../../../../src/gateway/ai/billing/bill.ts';
import { createDocumentGenerator } from '../generator.ts';

/** The members of the object as pairs of name and JSON text; undefined if it is not an object. */
function membersOf(text: string): [string, string][] | undefined {
  const bytes = Buffer.from(text);
  return topLevelMembers(bytes)?.members.map(({ name, start, end }) => [
    name,
    bytes.toString('utf8', start, end),
  ]);
}

describe('topLevelMembers', () => {
  test('finds each value, whatever its type and the spacing', () => {
    const text = [
      ' { "a" :\n1 , "b":"x\\"}, \\\\" ,"c" : [ {"a":2} , "]" ] ,',
      ' "d":{"model":"deep"},"e":-1.5e+10 , "f":null\t} ',
    ].join('');
    expect(membersOf(text)).toEqual([
      ['a', '1'],
      ['b', '"x\\"}, \\\\"'],
      ['c', '[ {"a":2} , "]" ]'],
      ['d', '{"model":"deep"}'],
      ['e', '-1.5e+10'],
      ['f', 'null'],
    ]);
  });

  test('reads escaped names', () => {
    expect(membersOf('{"\\u006dodel":"x","a\\nb":1}')).toEqual([
      ['model', '"x"'],
      ['a\nb', '1'],
    ]);
  });

  test('finds no members in an empty object', () => {
    expect(membersOf('{}')).toEqual([]);
    expect(membersOf(' { } ')).toEqual([]);
  });

  test.each([
    '',
    ' ',
    '[]',
    '"x"',
    '{',
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":1,',
    '{"a":1,}',
    '{"a":"x}',
    '{"a":[1}',
    '{"a":1}x',
    '{"a":1}{',
    '{a:1}',
    '{"a" 1}',
    '{"a":}',
    '{"a":1 "b":2}',
    '{"a":tr"ue}',
  ])('refuses text that is not an object: %s', (text) => {
    expect(topLevelMembers(Buffer.from(text))).toBeUndefined();
  });

  test('agrees with JSON.parse on random documents in random spacing', () => {
    const random = createDocumentGenerator(20261120);
    for (let round = 0; round < 500; round += 1) {
      const { text, value } = random.document();
      const values = membersOf(text)?.map(([name, bytes]) => [name, JSON.parse(bytes) as unknown]);
      expect(values, text).toEqual(Object.entries(value));
    }
  });

  test('locates a value so that editing it changes no other byte', () => {
    const random = createDocumentGenerator(7);
    const newValue = '"acme/fast"';
    let editCount = 0;
    for (let round = 0; round < 300; round += 1) {
      const { text } = random.document();
      const bytes = Buffer.from(text);
      const members = topLevelMembers(bytes)?.members ?? [];
      const target = members[random.below(members.length)];
      if (target === undefined) continue;
      const { name, start, end } = target;
      const editedBytes = applyEdits(bytes, [{ start, end, text: newValue }]);
      expect(editedBytes.subarray(0, start).equals(bytes.subarray(0, start))).toBe(true);
      expect(editedBytes.subarray(start + newValue.length).equals(bytes.subarray(end))).toBe(true);
      expect(JSON.parse(editedBytes.toString('utf8'))).toHaveProperty([name], 'acme/fast');
      editCount += 1;
    }
    // Some documents have no members.
    expect(editCount).toBeGreaterThan(200);
  });
});

describe('applyEdits', () => {
  test('sorts edits, and keeps the order of insertions at one offset', () => {
    const edits = [
      { start: 3, end: 4, text: 'D' },
      { start: 1, end: 1, text: '1' },
      { start: 1, end: 1, text: '2' },
    ];
    expect(applyEdits(Buffer.from('abcde'), edits).toString()).toBe('a12bcDe');
  });
});

describe('a document with too many parts', () => {
  test.each([
    ['deep', `{"choices":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['of too many empty arrays', `{"choices":[${'[],'.repeat(1_000_001)}0]}`],
    ['of too many members', `{${'"":1,'.repeat(10_001)}"a":1}`],
  ])('is refused: %s', (_kind, text) => {
    expect(topLevelMembers(Buffer.from(text))).toBeUndefined();
  });

  test('is accepted within the bounds', () => {
    expect(topLevelMembers(Buffer.from(`{"choices":[${'[],'.repeat(900_000)}0]}`))?.members).toHaveLength(1);
  });
});

test('an event counter merges at most 1,000 usage members', () => {
  const claims: unknown[] = [];
  const read = {
    ...chat,
    readClaim: (usage: Readonly<Record<string, unknown>>) => void claims.push(Object.keys(usage).length),
  };
  const count = createEventCounter(read, { recordUsage: () => {} } as unknown as Bill);
  for (let event = 0; event < 3; event += 1) {
    const bytes = Buffer.from(
      `{"usage":{${Array.from({ length: 900 }, (_, index) => `"${event}-${index}":1`).join(',')}}}`,
    );
    count({ bytes, data: { kind: 'object', members: topLevelMembers(bytes)?.members ?? [], texts: [] } });
  }
  expect(claims).toEqual([900, 1_000, 1_000]);
});
