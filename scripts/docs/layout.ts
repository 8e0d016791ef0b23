// The layout of all our own pages: navigation, the current page's place in it, and the search.

import path from 'node:path';
import type { Heading } from './markdown.ts';
import { ownHead } from './seal.ts';
import { escapeHtml } from './text.ts';

export interface NavigationGroup {
  title: string;
  links: { page: string; title: string }[];
}

/** `page` is the page's path in the portal; all of its links are relative to it. */
export function writePage({
  page,
  title,
  body,
  headings,
  navigation,
  isWide = false,
}: {
  page: string;
  title: string;
  body: string;
  headings: readonly Heading[];
  navigation: readonly NavigationGroup[];
  /** Whether the page has no list of headings, so that the text is wider. */
  isWide?: boolean;
}): string {
  const linkTo = (target: string) => path.posix.relative(path.posix.dirname(page), target);
  const home = linkTo('.') === '' ? './' : `${linkTo('.')}/`;
  return `<!doctype html>
<html lang="en">
<head>${ownHead}
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title === 'Townhall' ? title : `${title} · Townhall`)}</title>
<link rel="stylesheet" href="${linkTo('portal.css')}">
<script src="${linkTo('portal.js')}" defer data-root="${escapeHtml(home)}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header>
<a class="name" href="${linkTo('index.html')}">Townhall</a>
${searchBox}
<button id="menu" type="button" aria-expanded="false" aria-controls="navigation">Pages</button>
</header>
<div class="frame${isWide ? ' wide' : ''}">
<nav id="navigation" aria-label="Pages">
${navigation.map((group) => writeGroup(group, page, linkTo)).join('\n')}
</nav>
<main id="content" tabindex="-1">
${body}
</main>
${writeContents(headings)}
</div>
</body>
</html>
`;
}

const searchBox = `<div class="search" role="search">
<input type="search" id="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off" spellcheck="false" role="combobox" aria-expanded="false" aria-controls="results" aria-autocomplete="list">
<kbd>/</kbd>
<ul id="results" role="listbox" aria-label="Search results" hidden></ul>
</div>`;

function writeGroup(
  { title, links }: NavigationGroup,
  page: string,
  linkTo: (target: string) => string,
): string {
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
  const sections = headings.filter(({ depth }) => depth === 2);
  if (sections.length < 3) return '';
  const items = sections.map(
    ({ anchor, text }) => `<li><a href="#${escapeHtml(anchor)}">${escapeHtml(text)}</a></li>`,
  );
  return `<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>${items.join('')}</ul></nav>`;
}
