// A page for each operation: what it does, who may call it, its request, response and error codes,
// and samples with a field for the token. The reference page beside it shows every schema in full.

import { aliasesOf } from '../generate/aliases.ts';
import {
  type Body,
  type Document,
  type PlacedOperation,
  type Reference,
  type Schema,
  resolve,
} from '../generate/document.ts';
import { type SampleRequest, sampleRequest } from '../generate/sample-request.ts';
import type { SampledOperation } from '../generate/samples.ts';
import type { Surface } from '../generate/surfaces.ts';
import { writeCode } from './highlight.ts';
import { writeSamples } from './operation-samples.ts';
import { type DescribedSchema, membersOf, type Member, typeOf } from './schema-members.ts';
import { escapeHtml } from './text.ts';

export interface OperationPageOptions {
  document: Document;
  surface: Surface;
  endpoint: PlacedOperation;
  /** The page's path in the portal. */
  page: string;
  /** Guides that show the operation. */
  guides: readonly { page: string; title: string }[];
  /** Codes with a text on the page of error codes. */
  knownCodes: ReadonlySet<string>;
  /** The operation's address on the reference page, from the root of the portal. */
  reference: string;
  /** Renders Markdown of the contract. */
  render: (markdown: string) => string;
}

interface DescribedParameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: DescribedSchema;
}

interface DescribedResponse extends Omit<Body, 'content'> {
  description?: string;
  content?: Record<string, { schema?: Schema | Reference; examples?: Record<string, object> }>;
  links?: Record<string, { operationId?: string; description?: string }>;
}

interface DescribedOperation extends SampledOperation {
  description?: string;
  deprecated?: boolean;
}

const toRoot = '../../';

export function pageOfOperation(surface: Surface, id: string): string {
  return `operations/${surface.name}/${id}.html`;
}

/** The body of the page. */
export function writeOperationBody(options: OperationPageOptions): string {
  const { endpoint, render } = options;
  const operation = endpoint.operation as DescribedOperation;
  const { summary = endpoint.id, description = '' } = operation;
  const tag = tagOf(endpoint);
  const index = `${toRoot}operations/index.html`;
  const tagLabel = escapeHtml(`${options.surface.title}, ${tag}`);
  const tagLink = `<a href="${index}#${tagAnchor(options.surface, tag)}">${tagLabel}</a>`;
  const breakablePath = escapeHtml(endpoint.path).replaceAll('/', '/<wbr>');
  return `<article class="operation">
<div class="intro">
<p class="path"><a href="${index}">Operations</a> / ${tagLink}</p>
<h1 id="${escapeHtml(endpoint.id)}">${escapeHtml(summary)}</h1>
<p class="endpoint">${methodTag(endpoint.method)} <code>${breakablePath}</code></p>
${render(description)}
${writeFurtherPaths(options)}${writeCallers(options)}
</div>
${writeSamples(operation['x-codeSamples'] ?? [], () => requestOf(options))}
<div class="details">
${writeParameters(options)}
${writeRequestBody(options)}
${writeAnswers(options)}
${writeErrors(options)}
${writeMore(options)}
</div>
</article>`;
}

export function tagOf({ operation }: PlacedOperation): string {
  return operation.tags?.[0] ?? '';
}

/** The method as a colored label. */
function methodTag(method: string): string {
  return `<span class="method ${method}">${method.toUpperCase()}</span>`;
}

function writeFurtherPaths({ document, endpoint }: OperationPageOptions): string {
  const paths = aliasesOf(document, endpoint.id).map(({ path }) => `<code>${escapeHtml(path)}</code>`);
  return paths.length === 0 ? '' : `<p class="quiet">Also at ${paths.join(', ')}.</p>\n`;
}

const identityNames: Readonly<Record<string, string>> = {
  user: 'a user token',
  admin: 'an administrator session',
  agent: 'a token of the agent',
};

function writeCallers({ surface, endpoint }: OperationPageOptions): string {
  const identities = (endpoint.operation.security ?? []).flatMap((requirement) =>
    Object.keys(requirement).map((scheme) => identityNames[surface.identities[scheme] ?? ''] ?? scheme),
  );
  const callers = [...new Set(identities)];
  const text =
    callers.length === 0 ? 'Anyone may call it, without a token.' : `Needs ${callers.join(' or ')}.`;
  return `<p class="quiet">${escapeHtml(text)} In the clients: <code>${escapeHtml(endpoint.id)}</code>.</p>`;
}

/** The request of the samples; undefined when the body is not JSON. */
function requestOf({ document, surface, endpoint }: OperationPageOptions): SampleRequest | undefined {
  const { requestBody } = endpoint.operation;
  const mediaTypes =
    requestBody === undefined ? [] : Object.keys(resolve<Body>(document, requestBody).content ?? {});
  const hasForm = mediaTypes.length === 0 || mediaTypes.includes('application/json');
  return hasForm ? sampleRequest(document, surface, endpoint) : undefined;
}

function writeParameters({ document, endpoint, render }: OperationPageOptions): string {
  const parameters = (endpoint.operation.parameters ?? []).map(
    (parameter) => resolve(document, parameter) as DescribedParameter,
  );
  if (parameters.length === 0) return '';
  const rows = parameters.map(({ name, in: place, required, description = '', schema = {} }) =>
    memberRow(
      {
        name,
        type: `${typeOf(document, schema)}, in the ${place}`,
        isRequired: required === true,
        description,
      },
      render,
    ),
  );
  return `<h2 id="parameters">Parameters</h2>\n${writeTable(rows)}`;
}

function writeRequestBody({ document, endpoint, render }: OperationPageOptions): string {
  if (endpoint.operation.requestBody === undefined) return '';
  const { content = {} } = resolve<Body>(document, endpoint.operation.requestBody);
  const parts = Object.entries(content).map(([mediaType, { schema }]) => {
    const members = schema === undefined ? [] : membersOf(document, schema as DescribedSchema);
    return `<p class="quiet"><code>${escapeHtml(mediaType)}</code></p>\n${memberTable(members, render)}`;
  });
  return `<h2 id="body">Body</h2>\n${parts.join('\n')}`;
}

function writeAnswers({ document, endpoint, render }: OperationPageOptions): string {
  const answers = Object.entries(endpoint.operation.responses ?? {}).filter(
    ([status]) => Number(status) < 400,
  );
  const parts = answers.map(([status, value]) => {
    const { description = '', content = {}, links = {} } = resolve<DescribedResponse>(document, value);
    const media = Object.entries(content);
    const schema = media[0]?.[1].schema;
    const describedMembers = schema === undefined ? [] : membersOf(document, schema as DescribedSchema);
    // Most members of a response are always present; the mark is for members that a caller has to
    // send.
    const members = describedMembers.map((member) => ({ ...member, isRequired: false }));
    const types = media.map(([mediaType]) => `<code>${escapeHtml(mediaType)}</code>`).join(', ');
    const typeLine = types === '' ? '' : `<p class="quiet">${types}</p>\n`;
    const next = Object.values(links).map(({ operationId = '', description: reason = '' }) => {
      const id = escapeHtml(operationId);
      const text = render(reason).replaceAll(/<\/?p>|\n/g, '');
      return `<li><a href="${id}.html"><code>${id}</code></a>: ${text}</li>`;
    });
    const nextList = next.length === 0 ? '' : `<p>Next:</p>\n<ul>${next.join('')}</ul>\n`;
    return [
      `<h3 id="answer-${status}">${status}</h3>\n`,
      render(description),
      typeLine,
      memberTable(members, render),
      nextList,
    ].join('');
  });
  return `<h2 id="answers">Answers</h2>\n${parts.join('\n')}`;
}

function writeErrors({ document, endpoint, knownCodes, render }: OperationPageOptions): string {
  const operation = endpoint.operation as DescribedOperation;
  const errors = Object.entries(operation.responses ?? {}).filter(([status]) => Number(status) >= 400);
  if (errors.length === 0) return '';
  const parts = errors.map(([status, value]) => {
    const { description = '', content = {} } = resolve<DescribedResponse>(document, value);
    const examples = Object.values(content['application/json']?.examples ?? {}).map(
      (example) => resolve<{ value: ErrorExample }>(document, example as { value: ErrorExample }).value,
    );
    const text = render(description).replaceAll(/<\/?p>/g, '');
    const codes = examples.map((example) => writeErrorExample(example, knownCodes));
    return `<h3 id="error-${status}">${status} <span class="quiet">${text}</span></h3>\n${codes.join('\n')}`;
  });
  return `<h2 id="errors">Errors</h2>\n<div class="errors">${parts.join('\n')}</div>`;
}

/** An error; in Google's shape `code` is the status, and the details have our code. */
interface ErrorExample {
  error: { code: string | number; message: string; details?: { reason?: string }[] };
}

/** One line with the code and its message, which opens the whole answer. */
function writeErrorExample(example: ErrorExample, knownCodes: ReadonlySet<string>): string {
  const { code: ownCode, message, details = [] } = example.error;
  const code = typeof ownCode === 'number' ? (details[0]?.reason ?? '') : ownCode;
  const name = escapeHtml(code);
  const address = `${toRoot}guides/error-codes.html#${name}`;
  const link = knownCodes.has(code)
    ? `<p><a href="${address}">What <code>${name}</code> means, and what to do</a></p>`
    : '';
  const summary = `<code>${name}</code> <span class="quiet">${escapeHtml(message)}</span>`;
  return `<details class="error" data-code="${name}"><summary>${summary}</summary>
${writeCode(JSON.stringify(example, null, 2), 'json')}
${link}</details>`;
}

function writeMore({ guides, reference }: OperationPageOptions): string {
  const items = guides.map(
    ({ page, title }) => `<li><a href="${toRoot}${escapeHtml(page)}">${escapeHtml(title)}</a></li>`,
  );
  const list = items.length === 0 ? '' : `<h2 id="guides">Guides</h2>\n<ul>${items.join('')}</ul>\n`;
  const address = `${toRoot}${escapeHtml(reference)}`;
  return `${list}<p class="quiet"><a href="${address}">Every member of its schemas, in the reference</a></p>`;
}

function memberTable(members: readonly Member[], render: (markdown: string) => string): string {
  return members.length === 0 ? '' : writeTable(members.map((member) => memberRow(member, render)));
}

function memberRow(
  { name, type, isRequired, description, form }: Member,
  render: (markdown: string) => string,
): string {
  const requiredMark = isRequired ? ' <span class="required">required</span>' : '';
  const mark =
    form === undefined ? requiredMark : `${requiredMark} <span class="type">in ${escapeHtml(form)}</span>`;
  const term = `<code>${escapeHtml(name)}</code> <span class="type">${escapeHtml(type)}</span>${mark}`;
  return `<dt>${term}</dt><dd>${description === '' ? '' : render(description)}</dd>`;
}

function writeTable(rows: readonly string[]): string {
  return `<dl class="members">${rows.join('')}</dl>\n`;
}

/** The anchor of a tag in the list of all operations. */
export function tagAnchor(surface: Surface, tag: string): string {
  return `${surface.name}-${tag}`;
}

/** An operation as an item of a list: its summary as a link, its method and path. */
export function operationItem(address: string, { method, path, id, operation }: PlacedOperation): string {
  const link = `<a href="${escapeHtml(address)}">${escapeHtml(operation.summary ?? id)}</a>`;
  const endpoint = `${methodTag(method)} <code>${escapeHtml(path)}</code>`;
  return `<li>${link} <span class="endpoint">${endpoint}</span></li>`;
}

/** A list of all operations by document and tag. */
export function writeOperationIndex(
  groups: readonly {
    surface: Surface;
    tags: ReadonlyMap<string, readonly { page: string; endpoint: PlacedOperation }[]>;
  }[],
): string {
  const parts = groups.map(({ surface, tags }) => {
    const sections = [...tags].map(([tag, entries]) => {
      const items = entries.map(({ page, endpoint }) =>
        operationItem(page.replace('operations/', ''), endpoint),
      );
      const heading = `<h3 id="${tagAnchor(surface, tag)}">${escapeHtml(tag)}</h3>`;
      return `${heading}\n<ul class="operations">${items.join('\n')}</ul>`;
    });
    return `<h2 id="${surface.name}">${escapeHtml(surface.title)}</h2>\n${sections.join('\n')}`;
  });
  return [
    '<h1 id="operations">Operations</h1>',
    '<p>Each operation has a page with samples for curl, TypeScript and Python ' +
      'that you can copy and run against the local edition.</p>',
    parts.join('\n'),
  ].join('\n');
}
