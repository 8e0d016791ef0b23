// The first page of the portal, handwritten: what Townhall is and where each part begins.

import type { NavigationGroup } from './layout.ts';
import { escapeHtml } from './text.ts';

/** A document on the first page; file names are relative to the page. */
export interface Entry {
  page: string;
  document: string;
  title: string;
  summary: string;
  version: string;
  operations: number;
}

/** The body of the page; layout.ts adds the rest. */
export function writeIndexBody(entries: readonly Entry[], guides: readonly NavigationGroup[]): string {
  return `<h1 id="townhall">Townhall</h1>
<p class="lead">A model gateway and an agent runtime behind HTTP. The gateway stands between the users of a product and
the models it uses: logins, tokens, credits and one catalog of models. The agent runs on your machine and calls models
through the gateway.</p>
<p><a class="first" href="start.html">Start</a></p>
<h2 id="reference">Reference</h2>
<p><a href="operations/index.html">All operations</a>, each with samples for curl, TypeScript and Python. The documents
below show every schema in full.</p>
<ul class="cards">
${entries.map(writeEntry).join('\n')}
</ul>
<h2 id="guides">Guides</h2>
${guides.map(({ title, links }) => `<h3>${escapeHtml(title)}</h3>\n<ul class="guides">${links.map((link) => `<li><a href="${link.page}">${escapeHtml(link.title)}</a></li>`).join('')}</ul>`).join('\n')}
<p>Both servers answer errors in one shape and take a bearer token; each operation says who may call it. Clients of the
chat-completions format need only another base address: <code>http://127.0.0.1:43127/v1/ai</code>.</p>
<p class="quiet">These pages work offline: they load nothing from other sites.</p>`;
}

function writeEntry({ page, document, title, summary, version, operations }: Entry): string {
  return `<li>
<h3><a href="${escapeHtml(page)}">${escapeHtml(title)}</a></h3>
<p>${escapeHtml(summary)}</p>
<p class="quiet">Version ${escapeHtml(version)}, ${operations} operations · <a href="${escapeHtml(document)}">OpenAPI document</a></p>
</li>`;
}
