// The samples on an operation's page: a tab for each language, one field for the token, and a form
// that sends the sample's request.

import type { CodeSample } from '../generate/samples.ts';
import type { Json, SampleRequest } from '../generate/sample-request.ts';
import { highlight } from './highlight.ts';
import { escapeHtml } from './text.ts';

/** `requestOf` returns undefined for a request that a form cannot hold, such as an upload. */
export function writeSamples(
  samples: readonly CodeSample[],
  requestOf: () => SampleRequest | undefined,
): string {
  if (samples.length === 0) return '';
  const request = requestOf();
  const variable = /TOWNHALL_\w*TOKEN/.exec(samples.map(({ source }) => source).join('\n'))?.[0];
  return `<section class="samples" aria-label="Samples">
${writeSampleTabs(samples)}
${variable === undefined ? '' : tokenField(variable)}
${request === undefined ? '' : writeRequestForm(request)}
</section>`;
}

/** The tabs alone. */
export function writeSampleTabs(samples: readonly CodeSample[]): string {
  const tabs = samples.map(({ label }, index) => {
    const state = index === 0 ? 'aria-selected="true"' : 'aria-selected="false" tabindex="-1"';
    const name = `id="tab-${index}" aria-controls="sample-${index}"`;
    return `<button type="button" role="tab" ${name} ${state}>${escapeHtml(label)}</button>`;
  });
  const panels = samples.map((sample, index) => {
    const name = `id="sample-${index}" aria-labelledby="tab-${index}"`;
    const code = `<pre tabindex="0"><code>${highlightSample(sample)}</code></pre>`;
    return `<div role="tabpanel" ${name} data-label="${escapeHtml(sample.label)}">${code}</div>`;
  });
  return `<div class="tabs"><div role="tablist" aria-label="Language">${tabs.join('')}</div>
${panels.join('\n')}</div>`;
}

const languages: Readonly<Record<string, string>> = { Shell: 'sh', TypeScript: 'ts', Python: 'py' };

/**
 * Highlights a sample and marks its token and the quotes that the language needs around a token, so that
 * the page can insert the reader's token. Throws when a sample has a token that could not be marked.
 */
export function highlightSample({ lang, source }: CodeSample): string {
  const html = highlight(source, languages[lang] ?? '');
  const mark = tokenMarks[lang];
  const markedHtml = mark === undefined ? html : html.replaceAll(mark.pattern, mark.replacement);
  const isMarked = markedHtml.includes('data-quote');
  if (/TOWNHALL_\w*TOKEN/.test(source) && !isMarked)
    throw new Error(
      `the token of a sample in ${lang} does not match the pattern in tokenMarks; ` +
        `change one of them:\n${source}`,
    );
  return markedHtml;
}

const tokenMarks: Readonly<Record<string, { pattern: RegExp; replacement: string }>> = {
  Shell: {
    pattern: /<span class="hljs-variable">\$TOWNHALL_\w*TOKEN<\/span>/g,
    replacement: '<span class="token-mark" data-quote="">$&</span>',
  },
  TypeScript: {
    pattern:
      /process\.<span class="hljs-property">env<\/span>\[<span class="hljs-string">&#x27;TOWNHALL_\w*TOKEN&#x27;<\/span>\]/g,
    replacement: `<span class="token-mark" data-quote="'">$&</span>`,
  },
  Python: {
    pattern:
      /<span class="hljs-string">f&quot;Bearer <span class="hljs-subst">\{os\.environ\[<span class="hljs-string">&#x27;TOWNHALL_\w*TOKEN&#x27;<\/span>\]\}<\/span>&quot;<\/span>/g,
    replacement: `<span class="token-mark" data-quote="&quot;" data-prefix="Bearer ">$&</span>`,
  },
};

const tokenPlaces: Readonly<Record<string, string>> = {
  TOWNHALL_TOKEN: 'The local edition has one in <code>data/local.token</code>.',
  TOWNHALL_ADMIN_TOKEN: 'It comes from <code>POST /v1/admin/login</code>.',
  TOWNHALL_AGENT_TOKEN: 'The agent has one in <code>data/agent/agent.token</code>.',
};

/** The attributes of fields for tokens, addresses and JSON. */
const plainTextAttributes = 'autocomplete="off" spellcheck="false"';

function tokenField(variable: string): string {
  return `<div class="token"><label for="token">Your token</label>
<input id="token" type="text" placeholder="$${variable}" ${plainTextAttributes} aria-describedby="token-place">
<p class="quiet" id="token-place">${tokenPlaces[variable] ?? ''} It is written into the samples, stays in the
memory of this page and is sent only when you press Send.</p></div>`;
}

/**
 * The form of the request. It works on a page that a gateway serves: a gateway accepts requests of
 * its own origin, and an agent accepts requests of the origins that it was started with.
 */
function writeRequestForm({
  surface,
  method,
  baseUrl,
  target,
  body,
  headers,
  choice,
}: SampleRequest): string {
  const isAgent = surface.name !== 'gateway';
  const server = isAgent
    ? `<label for="try-server">Agent</label>
<input id="try-server" type="url" value="${escapeHtml(baseUrl)}" ${plainTextAttributes} aria-describedby="try-note">
<p class="quiet" id="try-note">An agent accepts requests of pages that
<code>AGENT_ALLOW_ORIGIN</code> names.</p>`
    : '';
  const headerText = escapeHtml(JSON.stringify({ ...headers, ...choice.headers }));
  const methodLabel = `<span class="method ${method.toLowerCase()}">${method}</span>`;
  const targetField = `<input id="try-target" type="text" value="${escapeHtml(target)}" ${plainTextAttributes}>`;
  return `<form class="try" hidden data-method="${method}" data-headers="${headerText}">
<h2 id="try-it">Try it</h2>
${server}
<label for="try-target">Address</label>
<div class="address">${methodLabel}${targetField}</div>
${body === undefined ? '' : writeBodyField(body)}
<p class="actions"><button type="submit" class="primary">Send</button>
<button type="button" class="stop" hidden>Stop</button> <span class="status quiet" role="status"></span></p>
<pre class="output" tabindex="0" hidden aria-label="Response"><code></code></pre>
</form>`;
}

function writeBodyField(body: Json): string {
  const text = JSON.stringify(body, null, 2);
  const rows = Math.min(14, text.split('\n').length);
  return `<label for="try-body">Body</label>
<textarea id="try-body" rows="${rows}" ${plainTextAttributes}>${escapeHtml(text)}</textarea>`;
}
