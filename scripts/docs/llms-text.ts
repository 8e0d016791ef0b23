// Writes llms.txt (llmstxt.org): the list of all texts for a language model, each as Markdown.

import type { NavigationGroup } from './layout.ts';

export interface TextPage {
  /** The HTML page of the text. */
  page: string;
  title: string;
  markdown: string;
}

/** The name of a page's Markdown beside it. */
export function markdownPage(page: string): string {
  return page.replace(/\.html$/, '.md');
}

/** Writes the pages in the order of the navigation; pages without Markdown are left out. */
export function writeLlmsText(
  texts: readonly TextPage[],
  navigation: readonly NavigationGroup[],
  documents: readonly { document: string; title: string }[],
): string {
  const byPage = new Map(texts.map((text) => [text.page, text]));
  const groups = navigation.flatMap(({ title, links }) => {
    const lines = links.flatMap(({ page }) => {
      const text = byPage.get(page);
      if (text === undefined) return [];
      const sentence = firstSentence(text.markdown);
      return [`- [${text.title}](${markdownPage(page)})${sentence === '' ? '' : `: ${sentence}`}`];
    });
    return lines.length === 0 ? [] : [`## ${title}\n${lines.join('\n')}\n`];
  });
  const contract = documents.map(({ document, title }) => `- [${title}](${document}): OpenAPI 3.1`);
  return [
    '# Townhall',
    "> A model gateway between a product's users and the models, and an agent runtime that works " +
      'through it.\n',
    ...groups,
    `## OpenAPI\n${contract.join('\n')}\n`,
  ].join('\n');
}

/** The first sentence below the title; empty unless a plain paragraph follows the title. */
export function firstSentence(markdown: string): string {
  const [, paragraph = ''] = /^# [^\n]*\n+([A-Z`][^\n]*)/.exec(markdown) ?? [];
  const [sentence = ''] = /^.*?[.!?](?=\s|$)/.exec(paragraph) ?? [];
  return sentence.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');
}
