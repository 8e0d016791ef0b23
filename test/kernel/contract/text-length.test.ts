// The fast implementation of the length keywords, compared with Ajv's own keywords.
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { useQuickLengths } from '../../../src/kernel/contract/text-length.ts';

const texts = [
  '',
  'a',
  'ab',
  'abc',
  '\u{1f600}',
  'a\u{1f600}',
  '\u{1f600}\u{1f600}',
  '\u{1f600}\u{1f600}\u{1f600}',
  '\ud83d',
  '\ude00\ud83d',
  'e\u0301e\u0301',
];

describe('the length keywords', () => {
  test.each(['minLength', 'maxLength'])('%s counts as Ajv does', (keyword) => {
    const ajv = new Ajv({ logger: false });
    useQuickLengths(ajv);
    for (const limit of [0, 1, 2, 3, 4]) {
      const [quickCheck, ajvCheck] = [
        ajv.compile({ [keyword]: limit }),
        new Ajv({ logger: false }).compile({ [keyword]: limit }),
      ];
      for (const text of texts)
        expect([text, limit, quickCheck(text)]).toEqual([text, limit, ajvCheck(text)]);
    }
  });

  test('report the same errors as Ajv', () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'string', minLength: 2, maxLength: 3, pattern: '^a' } },
    };
    const ajv = new Ajv({ logger: false });
    useQuickLengths(ajv);
    const [quickCheck, ajvCheck] = [ajv.compile(schema), new Ajv({ logger: false }).compile(schema)];
    for (const a of ['a', 'abcd', 'b', 'bbbb']) {
      quickCheck({ a });
      ajvCheck({ a });
      expect(quickCheck.errors).toEqual(ajvCheck.errors);
    }
  });
});
