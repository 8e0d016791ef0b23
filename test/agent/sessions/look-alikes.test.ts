// Compares `defuse` with a slow reference that converts the whole text to compatibility form (NFKC).
// Random texts consist of pieces that look like `<file` in one form or another.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defuse, renderFiles } from '../../../src/agent/sessions/attachments/render.ts';

const lookAlike = /<(?=[\s\\]*(?:\/[\s\\]*)?file(?![\p{L}\p{N}_]))/giu;
const invisibleCharacters = /[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Mn}]/gu;

/** The reference: it converts the whole text, which is slow. */
function defuseByReference(text: string): string {
  let plainText = '';
  const unitEnds: number[] = [];
  let position = 0;
  for (const character of text) {
    position += character.length;
    const visibleCharacters =
      (character.codePointAt(0) as number) < 0x80
        ? character
        : character.replace(invisibleCharacters, '').normalize('NFKC');
    for (let unit = 0; unit < visibleCharacters.length; unit += 1) unitEnds.push(position);
    plainText += visibleCharacters;
  }
  let defusedText = '';
  let start = 0;
  for (const { index } of plainText.matchAll(lookAlike)) {
    defusedText += `${text.slice(start, unitEnds[index])}\\`;
    start = unitEnds[index] as number;
  }
  return defusedText + text.slice(start);
}

describe('defuse', () => {
  const pieces = [
    '<',
    '\uff1c',
    '\ufe64',
    '/',
    '\uff0f',
    '\\',
    ' ',
    '\u00a0',
    '\n',
    '\u200b',
    '\u0301',
    '\ufeff',
    'file',
    'FILE',
    '\uff46\uff49\uff4c\uff45',
    '\ufb01le',
    'f',
    'i',
    '\u0130',
    '\u0131',
    'l',
    'e',
    '\u00e9',
    '>',
    '_',
    '7',
    'x',
    '\u{1d41f}',
    '\u{1f600}',
    '\u2100',
    '\ufdfa',
    '\ud83d',
  ];

  test('agrees with the reference on random mixtures', () => {
    const text = fc.array(fc.constantFrom(...pieces), { maxLength: 14 }).map((parts) => parts.join(''));
    expect(() =>
      fc.assert(
        fc.property(text, (mixedText) => defuse(mixedText) === defuseByReference(mixedText)),
        { numRuns: 5_000, seed: 7 },
      ),
    ).not.toThrow();
  });

  // The é selects the algorithm for text that is not ASCII; most mixtures above have such a character anyway.
  test('agrees with the reference on random pieces around a plain name', () => {
    const text = fc
      .array(fc.constantFrom(...pieces), { maxLength: 6 })
      .map((parts) => `\u00e9<${parts.join('')}file${parts.join('')}`);
    expect(() =>
      fc.assert(
        fc.property(text, (mixedText) => defuse(mixedText) === defuseByReference(mixedText)),
        { numRuns: 5_000, seed: 7 },
      ),
    ).not.toThrow();
  });

  test('defuses a long text in pieces as it does as a whole', async () => {
    const text = `\u00e9${'<\u200bfile <\\ x'.repeat(100_000)}${' '.repeat(300_000)}</file>`;
    const renderedText = await renderFiles(
      [
        {
          attachmentId: 'att',
          fileName: 'a',
          contentType: 'text/plain',
          sizeBytes: 1,
          text,
          isBase64: false,
        },
      ],
      'n',
    );
    expect(renderedText.slice(renderedText.indexOf('\n') + 1, -'\n</file>'.length)).toBe(defuse(text));
  });

  test('covers every character whose compatibility form is <', () => {
    const signs: number[] = [];
    for (let code = 0; code <= 0x10ffff; code += 1) {
      if (code < 0xd800 || code > 0xdfff)
        if (String.fromCodePoint(code).normalize('NFKC').includes('<')) signs.push(code);
    }
    expect(signs.map((code) => code.toString(16))).toEqual(['3c', 'fe64', 'ff1c']);
  });
});
