// `minLength` and `maxLength` for the validator. Its own implementation always counts the characters of the
// whole text; for most texts the number of UTF-16 units is enough, since a character has one or two of them.
import { _, type Ajv, type CodeKeywordDefinition, type KeywordCxt } from 'ajv';

/** Replaces both keywords. */
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
    // Reject a long text before its pattern runs.
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

/** Whether the text has no more characters than the limit. */
export function hasAtMost(text: string, limit: number): boolean {
  if (text.length <= limit) return true;
  return text.length <= 2 * limit && countCharacters(text) <= limit;
}

/** Whether the text has no fewer characters than the limit. */
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
