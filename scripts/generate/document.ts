// The parts of an OpenAPI 3.1 document that the generators read, and the resolution of references.
// It handles bundled documents only: every reference points into the document itself.

import type { ProblemDetail } from '../../src/kernel/problem.ts';
import type { Surface } from './surfaces.ts';

export interface Reference {
  $ref: string;
}

export interface Schema {
  type?: string | string[];
  format?: string;
  contentMediaType?: string;
  properties?: Record<string, Schema | Reference>;
  items?: Schema | Reference;
  enum?: unknown[];
  'x-codes'?: Record<string, ErrorCode>;
}

/** An entry of `x-codes` in openapi/shared/schemas/ProblemCode.yaml. */
export interface ErrorCode {
  status: number[];
  example?: { message: string; param?: string; details?: ProblemDetail[] };
}

export interface MediaType {
  schema?: Schema | Reference;
}

export interface Body {
  required?: boolean;
  content?: Record<string, MediaType>;
  /** The headers of a response. */
  headers?: Record<string, object>;
}

export interface Operation {
  operationId?: string;
  summary?: string;
  description?: string;
  tags?: string[];
  security?: Record<string, string[]>[];
  parameters?: ({ name: string; in: string } | Reference)[];
  requestBody?: Body | Reference;
  responses?: Record<string, Body | Reference>;
  'x-passthrough'?: boolean;
  'x-tolerates-query'?: boolean;
  'x-ignores-credential'?: boolean;
  'x-error-codes'?: string[];
  /** The operationId of the original, when this operation is another path of it. */
  'x-alias-of'?: string;
}

export interface Document {
  paths?: Record<string, Record<string, unknown>>;
  components?: {
    schemas?: Record<string, Schema>;
    headers?: Record<string, object>;
    responses?: Record<string, object>;
    examples?: Record<string, object>;
    securitySchemes?: Record<string, { type?: string }>;
  };
}

/** An operation with its path and method. */
export interface PlacedOperation {
  method: string;
  path: string;
  id: string;
  operation: Operation;
}

const methods = ['get', 'put', 'post', 'delete', 'patch'];

/** Every operation, in the order of the document; throws for one without an operationId. */
export function operationsOf(document: Document): PlacedOperation[] {
  return Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    methods
      .filter((method) => item[method] !== undefined)
      .map((method) => {
        const operation = item[method] as Operation;
        if (operation.operationId === undefined)
          throw new Error(`${method.toUpperCase()} ${path} has no operationId`);
        return { method, path, id: operation.operationId, operation };
      }),
  );
}

/** The error codes of the contract; empty when the document has no list of them. */
export function errorCodesOf(document: Document): Record<string, ErrorCode> {
  return document.components?.schemas?.['ProblemCode']?.['x-codes'] ?? {};
}

/** Whether the operation refers to the parameter component of this name. */
export function hasParameter({ parameters = [] }: Operation, component: string): boolean {
  return parameters.some((parameter) => isReference(parameter) && parameter.$ref.endsWith(`/${component}`));
}

/** Follows references to the referenced value; throws for a dangling one. */
export function resolve<T extends object>(document: Document, value: T | Reference): T {
  let current: unknown = value;
  for (let depth = 0; depth < 32; depth += 1) {
    if (!isReference(current)) return current as T;
    current = lookUp(document, current.$ref);
  }
  throw new Error(`${(value as Reference).$ref} refers to itself`);
}

export function isReference(value: unknown): value is Reference {
  return typeof value === 'object' && value !== null && typeof (value as Reference).$ref === 'string';
}

/** Throws for the first reference of a bundle that leaves the document or points nowhere in it. */
export function checkReferences(document: Document, surface: Surface): void {
  const unvisitedValues: unknown[] = [document];
  while (unvisitedValues.length > 0) {
    const value = unvisitedValues.pop();
    if (typeof value !== 'object' || value === null) continue;
    if (isReference(value)) {
      try {
        lookUp(document, value.$ref);
      } catch (cause) {
        throw new Error(`the bundle of ${surface.name} has a reference that leads nowhere: ${value.$ref}`, {
          cause,
        });
      }
    }
    unvisitedValues.push(...Object.values(value as Record<string, unknown>));
  }
}

function lookUp(document: Document, reference: string): unknown {
  if (!reference.startsWith('#/')) throw new Error(`${reference} leaves the document`);
  let current: unknown = document;
  for (const part of reference.slice(2).split('/')) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    current = (current as Record<string, unknown> | undefined)?.[key];
  }
  if (current === undefined) throw new Error(`${reference} is not in the document`);
  return current;
}
