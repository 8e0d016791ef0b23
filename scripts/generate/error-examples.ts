// Writes an example of each error code into the responses of the published document: a component by
// code, to which the responses of the code's status refer. A response component that operations
// with different codes share becomes one component per set of codes, so that no response has the
// example of a code that its operation does not list. The codes' messages are under `x-codes` in
// openapi/shared/schemas/ProblemCode.yaml.

import { createHash } from 'node:crypto';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import type { ProblemCode } from '../../src/contract/problem-code.gen.ts';
import { type ErrorDialect, toErrorDialect } from '../../src/kernel/error-dialects.ts';
import { forSurface, kindOfStatus, Problem, renderProblem } from '../../src/kernel/problem.ts';
import {
  type Document,
  type ErrorCode,
  errorCodesOf,
  type Operation,
  isReference,
  operationsOf,
  resolve,
} from './document.ts';
import type { Surface } from './surfaces.ts';

interface Media {
  schema?: object;
  example?: unknown;
  examples?: Record<string, object>;
}

interface Response {
  content?: Record<string, Media>;
}

type ErrorOperation = Operation & { 'x-error-types'?: ErrorDialect; 'x-error-types-header'?: string };

/** One use of a response by an operation. */
interface ResponseUse {
  responses: Record<string, unknown>;
  status: string;
  /** The names of its examples, in the contract's order of codes. */
  names: string[];
}

/** The uses of a response component by operations of one dialect. */
interface Group {
  reference: string;
  /** The beginning of the names of the dialect's examples. */
  prefix: string;
  uses: ResponseUse[];
}

const requestId = 'req_01jd6zv0c5e9fsr8m2w4x1k7qa';
const maxNameLength = 80;

/**
 * Changes the document. Throws for a code without an example, and for an example that does not fit
 * its schema.
 */
export function addErrorExamples(document: Document, surface: Pick<Surface, 'name'>): void {
  const codes = errorCodesOf(document);
  const examples = ((document.components ??= {}).examples ??= {});
  const sharedGroups = new Map<string, Group>();
  for (const { operation } of operationsOf(document)) {
    const { responses = {} } = operation;
    const prefix = prefixOf(operation);
    for (const [status, value] of Object.entries(responses)) {
      if (Number(status) < 400) continue;
      const names = (operation['x-error-codes'] ?? []).flatMap((code) => {
        const entry = codes[code];
        if (!entry?.status.includes(Number(status))) return [];
        const name = `${prefix}${code}${entry.status[0] === Number(status) ? '' : `_${status}`}`;
        examples[name] ??= { value: exampleOf(operation, surface, { code, status, entry }) };
        return [name];
      });
      if (!isReference(value)) setExamples(value as Response, names);
      else groupOf(sharedGroups, value.$ref, prefix).uses.push({ responses, status, names });
    }
  }
  for (const { reference, prefix, uses } of sharedGroups.values())
    splitComponent(document, { reference, prefix }, uses);
  removeUnused(document);
  requireValid(document);
}

function groupOf(groups: Map<string, Group>, reference: string, prefix: string): Group {
  const key = `${prefix} ${reference}`;
  const group = groups.get(key) ?? { reference, prefix, uses: [] };
  groups.set(key, group);
  return group;
}

/** The dialect of an operation's errors. If a header selects the dialect, examples use our own types. */
function dialectOf(operation: ErrorOperation): ErrorDialect | undefined {
  return operation['x-error-types-header'] === undefined ? operation['x-error-types'] : undefined;
}

/** The prefix of the names of examples in the operation's dialect. */
function prefixOf(operation: Operation): string {
  const dialect = dialectOf(operation);
  return dialect === undefined ? '' : `${dialect.replaceAll('-', '_')}_`;
}

function exampleOf(
  operation: Operation,
  surface: Pick<Surface, 'name'>,
  { code, status, entry }: { code: string; status: string; entry: ErrorCode },
): object {
  const { message, param = null, details = [] } = entry.example ?? { message: '' };
  if (message === '') throw new Error(`${code} has no example in openapi/shared/schemas/ProblemCode.yaml`);
  const problem = new Problem(kindOfStatus(Number(status)), code as ProblemCode, message, { param, details });
  const body = toErrorDialect(renderProblem(problem, requestId), problem, dialectOf(operation));
  return forSurface(body, surface.name === 'gateway' ? 'gateway' : 'agent');
}

function setExamples(response: Response, names: readonly string[]): void {
  const media = response.content?.['application/json'];
  if (media === undefined || names.length === 0) return;
  delete media.example;
  media.examples = Object.fromEntries(names.map((name) => [name, { $ref: `#/components/examples/${name}` }]));
}

/** Replaces a shared response by one component for each set of examples. */
function splitComponent(
  document: Document,
  { reference, prefix }: Pick<Group, 'reference' | 'prefix'>,
  uses: readonly ResponseUse[],
): void {
  const components = (document.components?.responses ?? {}) as Record<string, Response>;
  const originalResponse = resolve<Response>(document, { $ref: reference });
  const base = [reference.split('/').at(-1) ?? '', ...(prefix === '' ? [] : [prefix.slice(0, -1)])].join('_');
  const isCommon = (name: string) => uses.every(({ names }) => names.includes(name));
  for (const { responses, status, names } of uses) {
    const furtherNames = names.filter((name) => !isCommon(name)).map((name) => name.slice(prefix.length));
    const ownName = variantName(base, furtherNames);
    const variant = structuredClone(originalResponse);
    setExamples(variant, names);
    // Set it for every use: a variant with the original's name has to overwrite the original.
    components[ownName] = variant;
    responses[status] = { $ref: `#/components/responses/${ownName}` };
  }
}

/** The component's name and the codes that distinguish the variant; a digest if that is too long. */
function variantName(base: string, codes: readonly string[]): string {
  const fullName = [base, ...codes].join('_');
  if (fullName.length <= maxNameLength) return fullName;
  return `${base}_${createHash('sha256').update(codes.join()).digest('hex').slice(0, 8)}`;
}

/** Removes the response components that no operation refers to any more. */
function removeUnused(document: Document): void {
  const text = JSON.stringify(document.paths);
  const components = document.components?.responses ?? {};
  for (const name of Object.keys(components))
    if (!text.includes(`"#/components/responses/${name}"`)) delete components[name];
}

/** Checks each example once against each schema of a response that refers to it. */
function requireValid(document: Document): void {
  const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });
  ajv.addSchema(document, 'document');
  const validators = new Map<string, ValidateFunction>();
  const checkedReferences = new Set<string>();
  for (const { id, operation } of operationsOf(document)) {
    for (const [status, value] of Object.entries(operation.responses ?? {})) {
      const media = resolve<Response>(document, value as Response).content?.['application/json'];
      if (Number(status) < 400 || media?.schema === undefined) continue;
      // The references of the schema lead into the document, which ajv knows as `document`.
      const schema = JSON.stringify(media.schema).replaceAll('"#/', '"document#/');
      for (const [name, example] of Object.entries(media.examples ?? {})) {
        if (checkedReferences.has(`${name} ${schema}`)) continue;
        checkedReferences.add(`${name} ${schema}`);
        const validate = validators.get(schema) ?? ajv.compile(JSON.parse(schema) as object);
        validators.set(schema, validate);
        if (validate(resolve(document, example as { value: unknown }).value)) continue;
        const errors = ajv.errorsText(validate.errors);
        throw new Error(`the example ${name} of ${id} does not fit ${status}: ${errors}`);
      }
    }
  }
}
