// Parsing of JSON that models write.
import { describe, expect, test } from 'vitest';
import { parseToolInput } from '../../src/kernel/json-value.ts';

describe('parseToolInput', () => {
  test.each([
    ['{"a":1}', { a: 1 }],
    ['', {}],
    [' \n\t', {}],
    ['{"a":', '{"a":'],
    ['null', null],
  ])('reads %j', (text, input) => {
    expect(parseToolInput(text)).toEqual(input);
  });
});
