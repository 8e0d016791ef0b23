// Highlights code samples when the portal is built, so that its pages load no highlighter. The
// colors of the classes are in portal.css.

import type { LanguageFn } from 'highlight.js';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import diff from 'highlight.js/lib/languages/diff';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { escapeHtml } from './text.ts';

/** Commands in the guides, which the grammar for bash does not highlight because they are no builtins. */
const commands = ['curl', 'docker', 'git', 'helm', 'kubectl', 'node', 'npm', 'npx', 'townhall'];

const shell: LanguageFn = (api) => {
  const language = bash(api);
  const { built_in: builtins, ...keywords } = language.keywords as Record<string, string[]>;
  return {
    ...language,
    keywords: { ...keywords, built_in: [...(builtins ?? []), ...commands] },
    contains: [{ scope: 'attr', begin: /(?<=\s)--?[A-Za-z][\w-]*/ }, ...language.contains],
  };
};

// `xml` is needed for .tsx files: the grammar of TypeScript highlights their markup with it.
const languages: Readonly<Record<string, LanguageFn>> = {
  diff,
  javascript,
  json,
  python,
  shell,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

/** The languages by the names of fences and file extensions. */
const languagesByName: Readonly<Record<string, { language: string; title: string }>> = {
  diff: { language: 'diff', title: 'diff' },
  js: { language: 'javascript', title: 'JavaScript' },
  json: { language: 'json', title: 'JSON' },
  py: { language: 'python', title: 'Python' },
  sh: { language: 'shell', title: 'Shell' },
  ts: { language: 'typescript', title: 'TypeScript' },
  tsx: { language: 'typescript', title: 'TypeScript' },
  yaml: { language: 'yaml', title: 'YAML' },
};

/** The HTML of a sample; text of a language without a highlighter is only escaped. */
export function highlight(code: string, name: string): string {
  const language = languagesByName[name]?.language;
  return language === undefined ? escapeHtml(code) : hljs.highlight(code, { language }).value;
}

/** A block of code under the title of its language, such as `TypeScript` for `tsx`. */
export function writeCode(code: string, name: string): string {
  const title = languagesByName[name]?.title ?? name;
  const attribute = title === '' ? '' : ` data-language="${escapeHtml(title)}"`;
  return `<pre tabindex="0"${attribute}><code>${highlight(code, name)}</code></pre>`;
}
