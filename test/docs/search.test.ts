// The search of the portal: forms of words, and synonyms that readers use but the guides do not.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import MiniSearch from 'minisearch';
import { beforeAll, describe, expect, test } from 'vitest';
import { type SearchEntry, searchOptions } from '../../scripts/docs/browser/search-options.ts';
import { stem } from '../../scripts/docs/browser/search-terms.ts';
import { renderMarkdown } from '../../scripts/docs/markdown.ts';
import { writeSearchIndex } from '../../scripts/docs/search-index.ts';

const guides = path.join(import.meta.dirname, '../../docs/guides');
let index: MiniSearch<SearchEntry>;

// Loads the index of the guides as a browser does.
beforeAll(() => {
  const entries = readdirSync(guides).flatMap((name) => {
    const page = `guides/${path.basename(name, '.md')}.html`;
    const { title, sections } = renderMarkdown(readFileSync(path.join(guides, name), 'utf8'), {
      source: `docs/guides/${name}`,
      page,
      pageOf: () => undefined,
      readDiagram: () => '',
      writePicture: () => '',
    });
    return sections.map(({ anchor, heading, text }) => ({
      address: `${page}#${anchor}`,
      title: heading || title,
      page: title,
      text,
    }));
  });
  const [, json = '""'] = /= (.*);\n$/.exec(writeSearchIndex(entries)) ?? [];
  index = MiniSearch.loadJSON<SearchEntry>(JSON.parse(json) as string, searchOptions);
});

const pagesFor = (query: string): string[] => [
  ...new Set(index.search(query).map(({ address }) => /guides\/([\w-]+)/.exec(address as string)?.[1] ?? '')),
];

describe('the search of the portal', () => {
  test.each([
    ['streaming', 'first-five-minutes'],
    ['ollama', 'providers-by-example'],
    ['budget', 'key-with-a-budget'],
    ['kubernetes', 'kubernetes'],
    ['minio', 'storage-in-s3'],
    ['cors', 'login-and-tokens'],
    ['react', 'web-login-in-react'],
    ['litellm', 'from-litellm'],
    ['python', 'clients'],
    ['upgrading', 'upgrade'],
    ['docker', 'deploy'],
  ])('finds the guide for "%s" first', (query, guide) => {
    expect(pagesFor(query)[0]).toBe(guide);
  });

  test('finds the guide for a word of other products', () => {
    expect(pagesFor('tenant').slice(0, 3)).toContain('operating');
  });

  test('needs every word of a query or a synonym of it', () => {
    expect(pagesFor('team budget').slice(0, 2)).toContain('key-with-a-budget');
    expect(pagesFor('budget xyzzyplugh')).toEqual([]);
  });
});

describe('stem', () => {
  test.each([
    ['stream', 'streams', 'streamed', 'streaming'],
    ['charge', 'charges', 'charged', 'charging'],
    ['deploy', 'deployment', 'deploying'],
    ['retry', 'retries', 'retrying'],
    ['stop', 'stopped', 'stopping'],
    ['migrate', 'migration', 'migrations'],
    ['bureau', 'bureaus'],
    ['cor', 'cors'],
    ['run', 'runs'],
    ['use', 'uses'],
    ['price', 'prices', 'pricing'],
  ])('is the same for %s and its forms', (word, ...forms) => {
    expect(forms.map(stem)).toEqual(forms.map(() => stem(word)));
  });

  test.each(['status', 'access', 'address', 'pass', '502'])(
    'does not merge %s with a shorter word',
    (word) => {
      expect(stem(word)).toBe(word);
    },
  );
});
