// Renders a Markdown file as a part of a page: headings with anchors, links to pages
// of the portal, code unchanged.

import path from 'node:path';
import { Marked, type Token, type Tokens } from 'marked';
import { writeCode } from './highlight.ts';
import { anchorOf, escapeHtml } from './text.ts';

export interface Heading {
  depth: number;
  text: string;
  anchor: string;
}

/** The text below one heading, for the search. */
export interface Section {
  anchor: string;
  heading: string;
  text: string;
}

export interface RenderedMarkdown {
  title: string;
  html: string;
  headings: Heading[];
  sections: Section[];
}

export interface MarkdownOptions {
  /** The file's path in the repository, to which its links are relative. */
  source: string;
  /** The path of its page, relative to the portal. */
  page: string;
  /** The page of another file of the repository. */
  pageOf: (target: string) => string | undefined;
  /**
   * The text of an SVG file of the repository. It is written into the page, so that
   * it takes the page's colors.
   */
  readDiagram: (target: string) => string;
  /** The HTML of a picture of the repository with its description. */
  writePicture: (target: string, description: string) => string;
}

export function renderMarkdown(markdown: string, options: MarkdownOptions): RenderedMarkdown {
  const headings: Heading[] = [];
  const parser = createMarked(options, headings);
  const html = parser.parse(markdown, { async: false });
  return {
    title: headings.find(({ depth }) => depth === 1)?.text ?? path.posix.basename(options.source, '.md'),
    html,
    headings,
    sections: sectionsOf(parser.lexer(markdown), headings, parser),
  };
}

/** A renderer that adds each heading to `headings`. */
function createMarked(options: MarkdownOptions, headings: Heading[]): Marked {
  const { source, readDiagram } = options;
  const slugCounts = new Map<string, number>();
  return new Marked({
    gfm: true,
    renderer: {
      heading({ tokens, depth, text }: Tokens.Heading) {
        const headingText = plainText(text);
        const base = anchorOf(headingText);
        const count = slugCounts.get(base) ?? 0;
        slugCounts.set(base, count + 1);
        const anchor = count === 0 ? base : `${base}-${count}`;
        headings.push({ depth, text: headingText, anchor });
        const link =
          depth === 1 ? '' : ` <a class="anchor" href="#${anchor}" aria-label="Link to this section">#</a>`;
        const content = `${this.parser.parseInline(tokens)}${link}`;
        return `<h${depth} id="${escapeHtml(anchor)}">${content}</h${depth}>\n`;
      },
      link({ href, title, tokens }: Tokens.Link) {
        const titleAttribute = title ? ` title="${escapeHtml(title)}"` : '';
        const address = escapeHtml(portalLink(href, options));
        return `<a href="${address}"${titleAttribute}>${this.parser.parseInline(tokens)}</a>`;
      },
      image({ href, text }: Tokens.Image) {
        const file = path.posix.normalize(path.posix.join(path.posix.dirname(source), href));
        if (href.endsWith('.webp')) return options.writePicture(file, text);
        if (!href.endsWith('.svg')) throw new Error(`${source}: the image ${href} is no SVG or WebP file`);
        const label = escapeHtml(text);
        const diagram = readDiagram(file);
        return `<span class="diagram" tabindex="0" role="group" aria-label="${label}">${diagram}</span>`;
      },
      code({ text, lang }: Tokens.Code) {
        const language = lang?.split(/\s/)[0] ?? '';
        return `${writeCode(text, language)}\n`;
      },
      table(token: Tokens.Table) {
        const cells = (row: Tokens.TableCell[], tag: string) =>
          row.map((cell) => `<${tag}>${this.parser.parseInline(cell.tokens)}</${tag}>`).join('');
        const head = `<thead><tr>${cells(token.header, 'th')}</tr></thead>`;
        const rows = token.rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('');
        return `<div class="table" tabindex="0"><table>${head}<tbody>${rows}</tbody></table></div>\n`;
      },
      // Comments are for authors; any other HTML is shown as text.
      html: ({ text }) => (/^\s*<!--[\s\S]*-->\s*$/.test(text) ? '' : escapeHtml(text)),
    },
  });
}

/**
 * The address of a link within the portal. A link without a page stays unchanged, and is reported as broken
 * later.
 */
function portalLink(href: string, { source, page, pageOf }: MarkdownOptions): string {
  if (/^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith('#')) return href;
  const [file = '', anchor] = href.split('#');
  const target = path.posix.normalize(path.posix.join(path.posix.dirname(source), file));
  const targetPage = pageOf(target);
  if (targetPage === undefined) return href;
  const address =
    path.posix.relative(path.posix.dirname(page), targetPage) || path.posix.basename(targetPage);
  return anchor === undefined ? address : `${address}#${anchor}`;
}

/** `headings` has those within lists and quotations too, which do not start a section. */
function sectionsOf(tokens: readonly Token[], headings: readonly Heading[], parser: Marked): Section[] {
  const sections: Section[] = [];
  let current: Section = { anchor: '', heading: '', text: '' };
  let next = 0;
  for (const token of tokens) {
    if (token.type === 'heading') {
      const { anchor, text } = headings[next++] ?? { anchor: '', text: '' };
      current = { anchor, heading: text, text: '' };
      sections.push(current);
    } else if (token.type !== 'html') {
      current.text += ` ${plainText(token.raw)}`;
      if (sections.length === 0) sections.push(current);
      next += nestedHeadings(token, parser);
    }
  }
  return sections;
}

function nestedHeadings(token: Token, parser: Marked): number {
  let count = 0;
  void parser.walkTokens([token], ({ type }) => void (count += type === 'heading' ? 1 : 0));
  return count;
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
