// Limits on the JSON of a request body; http/server-requests.test.ts tests the other limits of a request.
import { describe, expect, test } from 'vitest';
import { parseJson } from '../../../src/kernel/contract/json.ts';
import type { Problem } from '../../../src/kernel/problem.ts';

const list = (item: (index: number) => string, length: number) =>
  `[${Array.from({ length }, (_, index) => item(index)).join(',')}]`;
const object = (length: number) => `{${Array.from({ length }, (_, index) => `"k${index}":0`).join(',')}}`;
const parse = (text: string) => parseJson(Buffer.from(text));

function problemOf(run: () => unknown): Problem {
  try {
    run();
  } catch (problem) {
    return problem as Problem;
  }
  throw new Error('It was accepted.');
}

describe('parseJson', () => {
  test.each([
    ['objects', list(() => '{}', 100_000), '100000 objects, arrays, names and strings'],
    ['arrays', list(() => '[]', 100_000), '100000 objects, arrays, names and strings'],
    ['strings', list(() => '""', 100_000), '100000 objects, arrays, names and strings'],
    ['names', list((index) => `{"k${index}":0}`, 50_000), '100000 objects, arrays, names and strings'],
    // The scan counts the commas, one fewer than the numbers.
    ['numbers', list(String, 500_002), '500000 values'],
    ['members in one object', `{"a":${object(10_001)}}`, '10000 members in one object'],
    [
      'members below other members',
      `{"a":{"b":{},${object(10_000).slice(1)}}`,
      '10000 members in one object',
    ],
  ])('refuses too many %s with 413', (_name, text, limit) => {
    expect(problemOf(() => parse(text))).toMatchObject({
      status: 413,
      code: 'request_too_large',
      message: `The body may have ${limit} at most.`,
    });
  });

  test.each([
    // Each message has ten parts (two objects, one array, four names, three texts) and the list is one more,
    // so one message more would exceed 100,000.
    [
      '9,999 messages with typed parts',
      list((index) => `{"role":"user","content":[{"type":"text","text":"${index}"}]}`, 9_999),
    ],
    ['300,000 tokens', `{"input":[${list(String, 150_000)},${list(String, 150_000)}]}`],
    ['10,000 members in each of two objects', `[${object(10_000)},${object(10_000)}]`],
    [
      'a long string of escapes',
      [
        `{"a":"${'\\"\\\\\\n\\u00e9'.repeat(10_000)}"`,
        `"b":"${'x'.repeat(1_000)}\\""`,
        `"c":"${'y'.repeat(1_000)}"}`,
      ].join(','),
    ],
    [
      'strings of every length around an escape',
      list((index) => `"${'x'.repeat(index)}\\"${'y'.repeat(index)}","${'z'.repeat(index)}"`, 200),
    ],
  ])('accepts %s', (_name, text) => {
    expect(parse(text)).toEqual(JSON.parse(text));
  });

  test.each([
    ['at the top', '{"model":"a","model":"b"}', 'model'],
    ['of a message', '{"messages":[{"content":"long"},{"content":"long","content":"hi"}]}', 'content'],
    ['in two spellings', '{"a":{"b":[{"name":1,"n\\u0061me":2}]}}', 'name'],
    ['after objects and arrays', '{"a":[{},[]],"b":{"c":{},"d":[],"c":1}}', 'c'],
  ])('refuses a repeated member %s', (_name, text, param) => {
    expect(problemOf(() => parse(text))).toMatchObject({ status: 400, code: 'duplicate_member', param });
  });

  test('accepts one name in several objects', () => {
    const text = '[{"a":{"a":[{"a":1},{"a":2}]}},{"a":{}},{"b":"a:","c":"\\":\\""}]';
    expect(parse(text)).toEqual(JSON.parse(text));
  });

  test.each([
    ['messages[1].content', '{"messages":[{"content":"x"},{"content":"\\ud800"}]}'],
    ['a.b[0]', '{"a":{"b":[1e999]}}'],
    ['a', '{"a":{"\\u005F_proto__":1}}'],
    ['a', '{"a":{"__\\u0070roto__":1}}'],
    ['a', '{"a":{"__prot\\u006F__":1}}'],
  ])('names the unsafe value at %s', (path, text) => {
    expect(problemOf(() => parse(text))).toMatchObject({ code: 'invalid_json', param: path });
  });

  test.each(['}', ']]', '{"a":1}}', '"\\', '"\\u', `"${'x'.repeat(100)}`, `"${'x'.repeat(100)}\\`])(
    'refuses the malformed %j',
    (text) => {
      expect(problemOf(() => parse(text))).toMatchObject({ status: 400, code: 'invalid_json' });
    },
  );
});
