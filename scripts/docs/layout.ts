// The layout of all our own pages: the header with the search, the links beside the text, the text,
// and the list of its sections. The reference pages of Redoc have the same header.

import path from 'node:path';
import type { Heading } from './markdown.ts';
import { markPath } from './mark.ts';
import { writeOwnHead } from './seal.ts';
import { escapeHtml } from './text.ts';

export interface NavigationGroup {
  title: string;
  links: { page: string; title: string }[];
}

/** The pages before and after a guide in the order of the navigation, and its Markdown. */
export interface PageFooter {
  previous?: { page: string; title: string } | undefined;
  next?: { page: string; title: string } | undefined;
  markdown?: string | undefined;
}

type LinkTo = (target: string) => string;

export interface PageOptions {
  /** The page's path in the portal; all of its links are relative to it. */
  page: string;
  title: string;
  description?: string;
  body: string;
  headings: readonly Heading[];
  navigation: readonly NavigationGroup[];
  footer?: PageFooter;
  /** `wide` pages have no list of headings; the `home` page has no links beside the text either. */
  kind?: 'text' | 'wide' | 'home';
  /** The servers that the page may call, as sources of a content security policy. */
  connections?: string | undefined;
}

export function writePage(options: PageOptions): string {
  const { page, title, description, body, headings, navigation, connections } = options;
  const { footer = {}, kind = 'text' } = options;
  const linkTo: LinkTo = (target) => relativeLink(page, target);
  const home = linkTo('.') === '' ? './' : `${linkTo('.')}/`;
  const contents = kind === 'text' ? writeContents(headings) : '';
  return `<!doctype html>
<html lang="en">
<head>${writeOwnHead(connections)}
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title === 'Townhall' ? title : `${title} · Townhall`)}</title>
${writeDescription(description)}<link rel="stylesheet" href="${linkTo('portal.css')}">
<script src="${linkTo('portal.js')}" defer data-root="${escapeHtml(home)}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
${writeHeader(page, `${searchBox}\n${themeButton}\n${menuButton}`)}
<div class="frame ${kind}">
<nav id="navigation" aria-label="Pages">
<ul class="small-only">${writeSections(linkTo)}</ul>
${navigation.map((group) => writeGroup(group, page, linkTo)).join('\n')}
</nav>
<main id="content" tabindex="-1">
${contents === '' ? body : body.replace('</h1>', () => `</h1>\n${writeFoldedContents(contents)}`)}
${writeFooter(footer, linkTo)}
</main>
${contents === '' ? '' : writeSideContents(contents)}
</div>
</body>
</html>
`;
}

/** Ends with a newline, so that a page without a description has no empty line. */
function writeDescription(description: string | undefined): string {
  return description === undefined ? '' : `<meta name="description" content="${escapeHtml(description)}">\n`;
}

function writeSections(linkTo: LinkTo): string {
  return sections.map(({ page, title }) => `<li><a href="${linkTo(page)}">${title}</a></li>`).join('');
}

function relativeLink(page: string, target: string): string {
  return path.posix.relative(path.posix.dirname(page), target);
}

/** The main links of the header; the pattern matches the pages of the section. */
const sections: readonly { title: string; page: string; pattern: RegExp }[] = [
  { title: 'Guides', page: 'start.html', pattern: /^(?:start\.html|guides\/)/ },
  { title: 'Operations', page: 'operations/index.html', pattern: /^operations\// },
  { title: 'Reference', page: 'gateway.html', pattern: /^(?:gateway|agent|agent-classic)\.html$/ },
];

/** The header of every page; `controls` follow its links. */
export function writeHeader(page: string, controls: string): string {
  const links = sections.map((section) => {
    const current = section.pattern.test(page) ? ' aria-current="true"' : '';
    return `<a href="${relativeLink(page, section.page)}"${current}>${section.title}</a>`;
  });
  return `<header class="bar">
<a class="name" href="${relativeLink(page, 'index.html')}">${mark}Townhall</a>
<nav class="sections" aria-label="Sections">${links.join('')}</nav>
${controls}
</header>`;
}

function writeIcon(size: number, content: string): string {
  return `<svg viewBox="0 0 24 24" width="${size}" height="${size}" aria-hidden="true">${content}</svg>`;
}

const mark = writeIcon(20, `<path fill="currentColor" d="${markPath}"/>`);

const searchBox = `<div class="search" role="search">
<input type="search" id="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off"
 spellcheck="false" role="combobox" aria-expanded="false" aria-controls="results" aria-autocomplete="list">
<kbd>/</kbd>
<ul id="results" role="listbox" aria-label="Search results" hidden></ul>
</div>`;

const themeIcon = writeIcon(
  18,
  '<circle cx="12" cy="12" r="9" fill="none" stroke="currentColor" stroke-width="2"/>' +
    '<path fill="currentColor" d="M12 3a9 9 0 0 1 0 18z"/>',
);
const themeButton =
  '<button id="theme" type="button" aria-label="Dark colors" aria-pressed="false" hidden>' +
  `${themeIcon}</button>`;

const menuIcon = writeIcon(
  18,
  '<path stroke="currentColor" stroke-width="2.5" d="M3 6h18M3 12h18M3 18h18"/>',
);
const menuButton =
  '<button id="menu" type="button" aria-label="Pages" aria-expanded="false" aria-controls="navigation">' +
  `${menuIcon}</button>`;

function writeGroup({ title, links }: NavigationGroup, page: string, linkTo: LinkTo): string {
  const items = links.map((link) => {
    const current = link.page === page ? ' aria-current="page"' : '';
    return `<li><a href="${linkTo(link.page)}"${current}>${escapeHtml(link.title)}</a></li>`;
  });
  return `<h2>${escapeHtml(title)}</h2>
<ul>
${items.join('\n')}
</ul>`;
}

/** The list of the page's sections; empty for a page with fewer than three. */
function writeContents(headings: readonly Heading[]): string {
  const mainHeadings = headings.filter(({ depth }) => depth === 2);
  if (mainHeadings.length < 3) return '';
  const items = mainHeadings.map(
    ({ anchor, text }) => `<li><a href="#${escapeHtml(anchor)}">${escapeHtml(text)}</a></li>`,
  );
  return `<ul>${items.join('')}</ul>`;
}

function writeSideContents(contents: string): string {
  return `<nav class="contents" aria-label="On this page"><h2>On this page</h2>${contents}</nav>`;
}

// A screen that is too narrow for the list beside the text shows it below the title.
function writeFoldedContents(contents: string): string {
  return `<details class="folded-contents"><summary>On this page</summary>${contents}</details>`;
}

function writeFooter({ previous, next, markdown }: PageFooter, linkTo: LinkTo): string {
  const step = (link: { page: string; title: string } | undefined, name: string, word: string) => {
    if (link === undefined) return '';
    const text = `<span class="quiet">${word}</span> ${escapeHtml(link.title)}`;
    return `<a class="${name}" href="${linkTo(link.page)}">${text}</a>`;
  };
  const steps = `${step(previous, 'previous', 'Previous')}${step(next, 'next', 'Next')}`;
  const source = markdown === undefined ? '' : `<a href="${linkTo(markdown)}">This page as Markdown</a> · `;
  const neighbors = steps === '' ? '' : `<nav class="steps" aria-label="Neighbouring pages">${steps}</nav>\n`;
  const list = `<a href="${linkTo('llms.txt')}">llms.txt</a>`;
  return `<footer>
${neighbors}<p class="quiet">${source}${list} · These pages load nothing from other sites.</p>
</footer>`;
}
