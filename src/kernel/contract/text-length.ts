// Faster `minLength` and `maxLength` for Ajv, whose own keywords always count the characters of the whole
// string. For most strings the number of UTF-16 units decides, since a character has one or two of them.
import { _, type Ajv, type CodeKeywordDefinition, type KeywordCxt } from 'ajv';

/** Replaces Ajv's `minLength` and `maxLength`. */
export function useQuickLengths(ajv: Pick<Ajv, 'removeKeyword' | 'addKeyword'>): void {
  for (const keyword of ['maxLength', 'minLength'] as const) {
    ajv.removeKeyword(keyword);
    ajv.addKeyword(lengthKeyword(keyword));
  }
}

function lengthKeyword(keyword: 'maxLength' | 'minLength'): CodeKeywordDefinition {
  const hasLength = keyword === 'maxLength' ? hasAtMost : hasAtLeast;
  const words = keyword === 'maxLength' ? 'more' : 'fewer';
  return {
    keyword,
    type: 'string',
    schemaType: 'number',
    // Reject a long string before its pattern runs.
    before: 'pattern',
    error: {
      message: ({ schemaCode }) => _`${`must NOT have ${words} than `} + ${schemaCode} + " characters"`,
      params: ({ schemaCode }) => _`{limit: ${schemaCode}}`,
    },
    code(context: KeywordCxt) {
      const check = context.gen.scopeValue('func', { ref: hasLength });
      context.fail(_`!${check}(${context.data}, ${context.schemaCode})`);
    },
  };
}

/** Whether the string has at most `limit` characters. */
export function hasAtMost(text: string, limit: number): boolean {
  if (text.length <= limit) return true;
  return text.length <= 2 * limit && countCharacters(text) <= limit;
}

/** Whether the string has at least `limit` characters. */
export function hasAtLeast(text: string, limit: number): boolean {
  if (text.length < limit) return false;
  return text.length >= 2 * limit || countCharacters(text) >= limit;
}

// Counts like JSON Schema: a surrogate pair is one character.
function countCharacters(text: string): number {
  let count = 0;
  for (let index = 0; index < text.length; index += 1) {
    if ((text.codePointAt(index) as number) > 0xffff) index += 1;
    count += 1;
  }
  return count;
}
