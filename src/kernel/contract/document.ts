// The parts of an OpenAPI 3.1 document that the server reads, and the resolution of its references.
// The document was linted and bundled by `npm run generate`, so its shape is trusted here.
import { decodePointerName } from '../json-pointer.ts';
import type { JsonRecord } from '../json-value.ts';

export interface OpenApiDocument {
  paths?: Record<string, Record<string, OperationObject>>;
  components?: { securitySchemes?: Record<string, SecurityScheme> };
}

export interface SecurityScheme {
  type?: string;
  in?: string;
  name?: string;
}

export interface OperationObject {
  operationId?: string;
  security?: Record<string, string[]>[];
  parameters?: (ParameterObject | Reference)[];
  requestBody?: BodyObject | Reference;
  responses?: Record<string, ResponseObject | Reference>;
  /** Vendor extensions, `x-…`. */
  [extension: string]: unknown;
}

export interface ParameterObject {
  name: string;
  in: string;
  required?: boolean;
  explode?: boolean;
  schema?: JsonRecord;
  'x-spans-slashes'?: boolean;
}

export interface BodyObject {
  required?: boolean;
  content?: Record<string, MediaTypeObject>;
}

export interface ResponseObject {
  headers?: Record<string, object>;
  content?: Record<string, MediaTypeObject>;
}

export interface MediaTypeObject {
  schema?: JsonRecord;
}

export interface Reference {
  $ref: string;
}

/** The target of a `$ref`; any other value is returned unchanged. Throws for a dangling reference. */
export function resolveReference<T extends object>(document: OpenApiDocument, value: T | Reference): T {
  let target: unknown = value;
  // The bound ends a `$ref` cycle.
  for (let hops = 0; hops < 32 && isReference(target); hops += 1) {
    const [, pointer = ''] = target.$ref.split('#');
    target = pointer
      .split('/')
      .slice(1)
      .map((part) => decodePointerName(decodeURIComponent(part)))
      .reduce<unknown>((parent, part) => (parent as JsonRecord | undefined)?.[part], document);
    if (target === undefined)
      throw new Error(`The contract has a dangling reference: ${(value as Reference).$ref}.`);
  }
  return target as T;
}

function isReference(value: unknown): value is Reference {
  return typeof (value as Partial<Reference> | undefined)?.$ref === 'string';
}
