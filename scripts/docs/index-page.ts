// The first page of the portal, by hand: what Townhall is and where each document begins.

import { sealedHead } from './seal.ts';

/** One document as the first page lists it; names of files are relative to the page. */
export interface Entry {
  page: string;
  document: string;
  title: string;
  summary: string;
  version: string;
  operations: number;
}

export function writeIndexPage(entries: readonly Entry[]): string {
  return `<!doctype html>
<html lang="en">
<head>${sealedHead}
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Townhall</title>
<style>
  :root { color-scheme: light dark; --ink: light-dark(#1c2430, #e6e9ee); --quiet: light-dark(#5b6676, #9aa4b2); --line: light-dark(#d9dee6, #333b47); --ground: light-dark(#fbfbf9, #14181e); --card: light-dark(#ffffff, #1b212a); --accent: light-dark(#a3432a, #f0916f); }
  body { margin: 0; background: var(--ground); color: var(--ink); font: 17px/1.6 system-ui, sans-serif; }
  main { max-width: 46rem; margin: 0 auto; padding: 4.5rem 1.5rem 3rem; }
  h1 { font-size: 2.6rem; line-height: 1.1; margin: 0 0 1rem; letter-spacing: -0.02em; }
  .lead { font-size: 1.2rem; margin: 0 0 2.5rem; }
  ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 1rem; }
  li { border: 1px solid var(--line); border-radius: 10px; background: var(--card); padding: 1.1rem 1.4rem; }
  li:hover { border-color: var(--accent); }
  h2 { font-size: 1.15rem; margin: 0; }
  a { color: var(--accent); text-underline-offset: 0.2em; }
  p { margin: 0.3rem 0; }
  .quiet, .quiet a { color: var(--quiet); font-size: 0.9rem; }
  code { font-size: 0.92em; }
  section { margin-top: 2.5rem; }
</style>
</head>
<body>
<main>
<h1>Townhall</h1>
<p class="lead">A model gateway and an agent runtime behind HTTP. The gateway stands between the users of a product and
the models it uses: logins, tokens, credits and one catalog of models. The agent runs beside a person and works through
the gateway.</p>
<ul>
${entries.map(writeEntry).join('\n')}
</ul>
<section>
<p>Both servers answer errors in one shape and take a bearer token; each operation says who may call it. Clients of the
chat-completions format need only another base address: <code>http://127.0.0.1:43127/v1/ai</code>.</p>
<p class="quiet">These pages are whole in themselves and load nothing from anywhere else.</p>
</section>
</main>
</body>
</html>
`;
}

function writeEntry({ page, document, title, summary, version, operations }: Entry): string {
  return `<li>
<h2><a href="${escape(page)}">${escape(title)}</a></h2>
<p>${escape(summary)}</p>
<p class="quiet">Version ${escape(version)}, ${operations} operations · <a href="${escape(document)}">OpenAPI document</a></p>
</li>`;
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
