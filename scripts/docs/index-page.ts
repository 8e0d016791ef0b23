// The first page of the portal, handwritten: what Townhall is, a first call, and where each part
// begins.

import type { CodeSample } from '../generate/samples.ts';
import { writeCode } from './highlight.ts';
import type { NavigationGroup } from './layout.ts';
import { writeSampleTabs } from './operation-samples.ts';
import { escapeHtml } from './text.ts';

/** A document on the first page; file names are relative to the page. */
export interface DocumentEntry {
  page: string;
  document: string;
  title: string;
  summary: string;
  version: string;
  operations: number;
}

export interface IndexOptions {
  entries: readonly DocumentEntry[];
  guides: readonly NavigationGroup[];
  /** The first sentence of each guide by its page. */
  descriptions: ReadonlyMap<string, string>;
  /** The samples of a call of a model. */
  samples: readonly CodeSample[];
  /** The HTML of the picture of the console. */
  picture: string;
}

/** Guides that begin with what a reader wants to do. */
const tasks: readonly { page: string; title: string }[] = [
  { page: 'guides/first-five-minutes.html', title: 'Call a model in five minutes' },
  { page: 'guides/providers-by-example.html', title: 'Connect Ollama, vLLM or OpenRouter' },
  { page: 'guides/key-with-a-budget.html', title: 'Give out a key with a budget' },
  { page: 'guides/web-login-in-react.html', title: 'Log users in from React' },
  { page: 'guides/agent-in-a-product.html', title: 'Put an agent into your product' },
  { page: 'guides/connect.html', title: 'Connect a coding agent' },
  { page: 'guides/from-litellm.html', title: 'Move from LiteLLM' },
  { page: 'guides/production-checklist.html', title: 'Go to production' },
  { page: 'guides/upgrade.html', title: 'Upgrade' },
];

/** The body of the page; layout.ts adds the rest. */
export function writeIndexBody(options: IndexOptions): string {
  const { entries, guides, descriptions, samples, picture } = options;
  return `<div class="hero">
<div>
<h1 id="townhall">Townhall</h1>
<p class="lead">A model gateway between your product's users and the models, and an agent runtime that works
through it.</p>
<p>Log users in, issue tokens and call any model through one API. Each call is charged once, from a balance
that never goes below zero. OpenAI, Anthropic and Google clients work unchanged.</p>
<p class="actions"><a class="primary" href="guides/first-five-minutes.html">First five minutes</a>
<a class="secondary" href="operations/index.html">All operations</a></p>
</div>
<div class="samples">
${writeCode('npm ci && npm start', 'sh')}
${writeSampleTabs(samples)}
</div>
</div>
<h2 id="tasks">What do you want to do?</h2>
<ul class="cards">
${tasks.map(({ page, title }) => writeTask(page, title, descriptions.get(page))).join('\n')}
</ul>
<h2 id="console">Talk to the agent</h2>
<p>The local edition comes with a <a href="guides/console.html">console</a>: conversations, sessions,
approvals and plugins of the agent.</p>
${picture}
<h2 id="reference">Reference</h2>
<p>Each of the <a href="operations/index.html">operations</a> has a page with samples for curl, TypeScript and
Python and a form that sends them. The documents below show every schema in full. Every
<a href="guides/error-codes.html">error code</a> says what to do.</p>
<ul class="cards documents">
${entries.map(writeEntry).join('\n')}
</ul>
<h2 id="guides">All guides</h2>
<div class="guides">
${guides.map(writeGuides).join('\n')}
</div>`;
}

function writeTask(page: string, title: string, description = ''): string {
  return `<li><h3><a href="${escapeHtml(page)}">${escapeHtml(title)}</a></h3>
<p>${escapeHtml(description)}</p></li>`;
}

function writeEntry({ page, document, title, summary, version, operations }: DocumentEntry): string {
  return `<li>
<h3><a href="${escapeHtml(page)}">${escapeHtml(title)}</a></h3>
<p>${escapeHtml(summary)}</p>
<p class="quiet">Version ${escapeHtml(version)}, ${operations} operations ·
<a href="${escapeHtml(document)}">OpenAPI document</a></p>
</li>`;
}

function writeGuides({ title, links }: NavigationGroup): string {
  const items = links.map((link) => `<li><a href="${link.page}">${escapeHtml(link.title)}</a></li>`);
  return `<section><h3>${escapeHtml(title)}</h3>\n<ul>${items.join('')}</ul></section>`;
}
