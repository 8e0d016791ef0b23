// The paths of invalid members in errors are cut at 256 characters, but never in the middle of a character.
import { expect, test } from 'vitest';
import { parseJson } from '../../../src/kernel/contract/json.ts';
import { compileSchema } from '../../../src/kernel/contract/schema.ts';
import { explainNulByte } from '../../../src/kernel/contract/storable.ts';
import { invalidRequestProblem } from '../../../src/kernel/contract/validation-errors.ts';
import { Problem } from '../../../src/kernel/problem.ts';

// The 256th character of a path that begins with this name would be the first half of the emoji.
const name = `${'a'.repeat(255)}\u{1F600}`;

function paramOf(run: () => unknown): string | null {
  try {
    run();
  } catch (error) {
    if (error instanceof Problem) return error.param;
    throw error;
  }
  throw new Error('It was accepted.');
}

const withNul = Object.assign(new Error('invalid byte sequence'), { code: '22021' });

test.each<[string, () => string | null | undefined]>([
  ['of an unsafe value', () => paramOf(() => parseJson(Buffer.from(`{${JSON.stringify(name)}:1e999}`)))],
  [
    'of an unknown member',
    () => {
      const result = compileSchema({ additionalProperties: false })({ [name]: 1 });
      return result.ok ? undefined : result.details[0]?.path;
    },
  ],
  ['of a NUL', () => (explainNulByte(withNul, {}, { [name]: '\0' }) as Problem).param],
  [
    'of an invalid request',
    () => {
      // The path is `aaa["😀"]`.
      const instancePath = `/requestBody/${'a'.repeat(253)}/\u{1F600}`;
      const tools = { resolve: () => ({}), check: () => [] };
      return invalidRequestProblem([{ keyword: 'type', instancePath, params: { type: 'string' } }], tools)
        .param;
    },
  ],
])('the path %s is well-formed text', (_name, pathOf) => {
  const path = pathOf();
  expect(path).toHaveLength(255);
  expect(path?.isWellFormed()).toBe(true);
});
