// The answer of a server at `/`: a small page for a browser, the same links as JSON for programs.
// It describes the server and is not an operation, so like the portal it is outside the contract
// (docs/decisions/2026-11-23-front-page.md).
import { createHash } from 'node:crypto';
import { acceptsHtml } from './accept.ts';
import { escapeHtml } from './html.ts';

export interface FrontPage {
  /** The server's name, such as `Townhall gateway`. */
  name: string;
  summary: string;
  version: string;
  links: readonly FrontPageLink[];
  /** How to get a token. */
  token: FrontPageHint;
}

export interface FrontPageLink {
  /** The member of the JSON form. */
  rel: string;
  title: string;
  href: string;
  note: string;
}

export interface FrontPageHint {
  text: string;
  /** A command to paste. */
  command?: string | undefined;
  /** The page with further instructions. */
  page?: { title: string; href: string } | undefined;
}

export interface FrontPageReply {
  body: string;
  headers: Readonly<Record<string, string>>;
}

const style = `
  :root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6676; --line: #d9dee6; --ground: #fbfbf9; --card: #fff;
    --accent: #a3432a; --well: #1d6a4b; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --quiet: #9aa4b2; --line: #333b47; --ground: #14181e;
    --card: #1b212a; --accent: #f0916f; --well: #6fcfa3; } }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--ground); color: var(--ink); font: 17px/1.55 system-ui, sans-serif; }
  main { max-width: 46rem; margin: 0 auto; padding: clamp(1.5rem, 6vh, 4rem) 1.25rem 3rem; }
  h1 { font-size: clamp(1.7rem, 6vw, 2.3rem); line-height: 1.15; letter-spacing: -.02em; margin: 0 0 .5rem; }
  h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
  p { margin: .4rem 0; }
  .state { color: var(--quiet); font-size: .95rem; margin: 0 0 .9rem; }
  .state b { color: var(--well); font-weight: 600; }
  .state b::before { content: ""; display: inline-block; width: .55em; height: .55em; margin-right: .45em;
    border-radius: 50%; background: currentColor; }
  ul { list-style: none; margin: 1.6rem 0 0; padding: 0; border: 1px solid var(--line); border-radius: 10px;
    background: var(--card); }
  li + li { border-top: 1px solid var(--line); }
  li a { display: grid; grid-template-columns: 9.5rem 1fr; gap: .2rem 1rem; padding: .75rem 1.1rem; color: inherit;
    text-decoration: none; }
  li a strong { color: var(--accent); font-weight: 600; }
  li a:hover strong { text-decoration: underline; text-underline-offset: .2em; }
  li a span { color: var(--quiet); }
  p a { color: var(--accent); text-underline-offset: .2em; }
  :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 8px; }
  pre { margin: .7rem 0; padding: .8rem 1.1rem; border: 1px solid var(--line); border-radius: 10px;
    background: var(--card); overflow-x: auto; line-height: 1.45; }
  code { font: .85rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
  @media (max-width: 34rem) { li a { grid-template-columns: 1fr; } }
`;

const policy = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
  'img-src data:',
  "form-action 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ');

const htmlHeaders: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': policy,
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
};

/** The page where `Accept` names HTML, as browsers do and client libraries do not; JSON otherwise. */
export function renderFrontPage(page: FrontPage, accept: string | undefined): FrontPageReply {
  const commonHeaders = { 'cache-control': 'no-store', vary: 'Accept' };
  if (acceptsHtml(accept)) return { body: renderPage(page), headers: { ...commonHeaders, ...htmlHeaders } };
  const links = Object.fromEntries(page.links.map(({ rel, href }) => [rel, href]));
  const body = `${JSON.stringify({ name: page.name, version: page.version, links })}\n`;
  return { body, headers: { ...commonHeaders, 'content-type': 'application/json; charset=utf-8' } };
}

function renderPage({ name, summary, version, links, token }: FrontPage): string {
  const rows = links.map(({ title, href, note }) => {
    const texts = `<strong>${escapeHtml(title)}</strong><span>${escapeHtml(note)}</span>`;
    return `<li><a href="${escapeHtml(href)}">${texts}</a></li>`;
  });
  const command = token.command === undefined ? '' : `\n<pre><code>${escapeHtml(token.command)}</code></pre>`;
  const moreLink =
    token.page === undefined
      ? ''
      : `\n<p><a href="${escapeHtml(token.page.href)}">${escapeHtml(token.page.title)}</a></p>`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>${escapeHtml(name)}</title>
<style>${style}</style>
</head>
<body><main>
<p class="state"><b>Running</b> · version ${escapeHtml(version)}</p>
<h1>${escapeHtml(name)}</h1>
<p>${escapeHtml(summary)}</p>
<ul>
${rows.join('\n')}
</ul>
<h2>Get a token</h2>
<p>${escapeHtml(token.text)}</p>${command}${moreLink}
</main></body>
</html>
`;
}
