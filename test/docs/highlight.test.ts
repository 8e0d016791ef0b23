// The colors of samples: every sample keeps its text, its language is known, and its token is marked.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { highlight, writeCode } from '../../scripts/docs/highlight.ts';
import { highlightSample } from '../../scripts/docs/operation-samples.ts';
import { sampledOperations } from './sampled-operations.ts';

const guides = path.join(import.meta.dirname, '../../docs/guides');

const fences = readdirSync(guides).flatMap((name) =>
  Array.from(
    readFileSync(path.join(guides, name), 'utf8').matchAll(/^```(\w+)\n([\s\S]*?)\n```$/gm),
    ([, language = '', code = '']) => ({ guide: name, language, code }),
  ),
);

function textOf(html: string): string {
  return html
    .replaceAll(/<[^>]+>/g, '')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#x27;', "'")
    .replaceAll('&amp;', '&');
}

describe('a sample of a guide', () => {
  test('keeps its text', () => {
    expect(fences.length).toBeGreaterThan(120);
    for (const { guide, language, code } of fences)
      expect(textOf(highlight(code, language)), guide).toBe(code);
  });

  test('has colors in every language of the guides', () => {
    const languages = new Set(
      fences.map(({ language }) => language).filter((language) => language !== 'text'),
    );
    expect([...languages].sort()).toEqual(['diff', 'json', 'py', 'sh', 'ts', 'tsx', 'yaml']);
    for (const language of languages) {
      const blocks = fences.filter((fence) => fence.language === language);
      expect(
        blocks.some(({ code }) => highlight(code, language).includes('class="hljs-')),
        language,
      ).toBe(true);
    }
  });

  test('is escaped below the title of its language', () => {
    expect(writeCode('<b> && "x"', 'sh')).toBe(
      '<pre tabindex="0" data-language="Shell"><code>' +
        '&lt;b&gt; &amp;&amp; <span class="hljs-string">&quot;x&quot;</span></code></pre>',
    );
    expect(writeCode('<b>', '')).toBe('<pre tabindex="0"><code>&lt;b&gt;</code></pre>');
  });
});

describe('a sample of an operation', () => {
  const samples = sampledOperations().flatMap((entry) => entry.samples);

  test('keeps its text', () => {
    expect(samples.length).toBeGreaterThan(500);
    for (const sample of samples) expect(textOf(highlightSample(sample))).toBe(sample.source);
  });

  test('marks each of its tokens', () => {
    for (const sample of samples) {
      const tokens = sample.source.match(/TOWNHALL_\w*TOKEN/g) ?? [];
      const marks = highlightSample(sample).match(/class="token-mark"/g) ?? [];
      expect(marks.length, sample.source).toBe(tokens.length);
    }
  });

  test('is refused when its token cannot be marked', () => {
    const sample = { lang: 'Python', label: 'Python', source: 'print(os.getenv("TOWNHALL_TOKEN"))' };
    expect(() => highlightSample(sample)).toThrow(/the token of a sample in Python does not match/);
  });
});
