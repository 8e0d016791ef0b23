// A Markdown file as a part of a page: headings with anchors, links that lead to pages of the portal, code as it is.

import path from 'node:path';
import { Marked, type Tokens } from 'marked';
import { anchorOf, escapeHtml } from './text.ts';

export interface Heading {
  depth: number;
  text: string;
  anchor: string;
}

/** A stretch of text below one heading, for the search. */
export interface Section {
  anchor: string;
  heading: string;
  text: string;
}

export interface Rendered {
  title: string;
  html: string;
  headings: Heading[];
  sections: Section[];
}

/**
 * `source` is the file's path in the repository, to which its links are relative; `pageOf` gives the page of another
 * path, relative to the portal, and `page` is this one's own. `readDiagram` gives the text of an SVG file of the
 * repository; it is written into the page, so that it takes the page's colors.
 */
export function renderMarkdown(
  markdown: string,
  {
    source,
    page,
    pageOf,
    readDiagram,
  }: {
    source: string;
    page: string;
    pageOf: (target: string) => string | undefined;
    readDiagram: (target: string) => string;
  },
): Rendered {
  const headings: Heading[] = [];
  const sections: Section[] = [];
  const slugCounts = new Map<string, number>();
  const marked = new Marked({
    gfm: true,
    renderer: {
      heading({ tokens, depth, text }: Tokens.Heading) {
        const plain = plainText(text);
        const base = anchorOf(plain);
        const count = slugCounts.get(base) ?? 0;
        slugCounts.set(base, count + 1);
        const anchor = count === 0 ? base : `${base}-${count}`;
        headings.push({ depth, text: plain, anchor });
        const link =
          depth === 1 ? '' : ` <a class="anchor" href="#${anchor}" aria-label="Link to this section">#</a>`;
        return `<h${depth} id="${escapeHtml(anchor)}">${this.parser.parseInline(tokens)}${link}</h${depth}>\n`;
      },
      link({ href, title, tokens }: Tokens.Link) {
        const titleAttribute = title ? ` title="${escapeHtml(title)}"` : '';
        return `<a href="${escapeHtml(portalLink(href))}"${titleAttribute}>${this.parser.parseInline(tokens)}</a>`;
      },
      image({ href, text }: Tokens.Image) {
        if (!href.endsWith('.svg')) throw new Error(`${source}: the image ${href} is not an SVG diagram`);
        const file = path.posix.normalize(path.posix.join(path.posix.dirname(source), href));
        return `<span class="diagram" tabindex="0" role="group" aria-label="${escapeHtml(text)}">${readDiagram(file)}</span>`;
      },
      code({ text, lang }: Tokens.Code) {
        const language = lang?.split(/\s/)[0] ?? '';
        return `<pre tabindex="0"${language === '' ? '' : ` data-language="${escapeHtml(languageName(language))}"`}><code>${escapeHtml(text)}</code></pre>\n`;
      },
      table(token: Tokens.Table) {
        const cells = (row: Tokens.TableCell[], tag: string) =>
          row.map((cell) => `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join('');
        return `<div class="table" tabindex="0"><table><thead><tr>${cells(token.header, 'th')}</tr></thead><tbody>${token.rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('')}</tbody></table></div>\n`;
      },
      // Comments are for those who write; anything else of HTML is shown as it was typed.
      html: ({ text }) => (/^\s*<!--[\s\S]*-->\s*$/.test(text) ? '' : escapeHtml(text)),
    },
  });

  function portalLink(href: string): string {
    if (/^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith('#')) return href;
    const [file = '', anchor] = href.split('#');
    const target = path.posix.normalize(path.posix.join(path.posix.dirname(source), file));
    const targetPage = pageOf(target);
    // Left as it is, and then found to be broken.
    if (targetPage === undefined) return href;
    return `${path.posix.relative(path.posix.dirname(page), targetPage) || path.posix.basename(targetPage)}${anchor === undefined ? '' : `#${anchor}`}`;
  }

  const html = marked.parse(markdown, { async: false });
  let current: Section = { anchor: '', heading: '', text: '' };
  let next = 0;
  for (const token of marked.lexer(markdown)) {
    if (token.type === 'heading') {
      const { anchor, text } = headings[next++] ?? { anchor: '', text: '' };
      current = { anchor, heading: text, text: '' };
      sections.push(current);
    } else if (token.type !== 'html') {
      current.text += ` ${plainText(token.raw)}`;
      if (sections.length === 0) sections.push(current);
    }
  }
  return {
    title: headings.find(({ depth }) => depth === 1)?.text ?? path.posix.basename(source, '.md'),
    html,
    headings,
    sections,
  };
}

function plainText(markdown: string): string {
  return markdown
    .replaceAll(/<!--[\s\S]*?-->/g, ' ')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/^\|(?:\s*:?-{3,}:?\s*\|)+$/gm, '')
    .replaceAll(/```\w*|[`*|]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

function languageName(language: string): string {
  return (
    { sh: 'shell', ts: 'TypeScript', js: 'JavaScript', json: 'JSON', yaml: 'YAML', py: 'Python' }[language] ??
    language
  );
}
