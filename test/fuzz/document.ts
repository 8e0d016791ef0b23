// A document of the contract for the fuzz tests, with a validator independent of the server's.
import { readFileSync } from 'node:fs';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { type Document, errorCodesOf, operationsOf, resolve } from '../../scripts/generate/document.ts';
import type { Json } from './mutations.ts';
import type { Schema } from './schema-values.ts';

export interface MediaType {
  schema?: Schema;
  example?: Json;
  examples?: Record<string, { value: Json }>;
}
export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header' | 'cookie';
  required?: boolean;
  schema?: Schema;
  example?: Json;
}
export interface Response {
  headers?: Record<string, unknown>;
  content?: Record<string, MediaType>;
}
export interface FuzzedOperation {
  id: string;
  method: string;
  path: string;
  parameters: Parameter[];
  body: { required: boolean; content: Record<string, MediaType> } | undefined;
  responses: Record<string, Response>;
  /** The operation may return statuses and media types that the document does not declare. */
  isPassthrough: boolean;
  /** Undeclared query parameters are passed on. */
  toleratesQuery: boolean;
  errorCodes: readonly string[];
  security: readonly Record<string, string[]>[];
  ignoresCredential: boolean;
}

export interface FuzzedDocument {
  operations: FuzzedOperation[];
  resolve: (schema: Schema) => Schema;
  /** The allowed statuses of each code. */
  statusesOf: (code: string) => readonly number[];
  /** The first error of the value, null when it is valid. */
  check: (schema: Schema, value: unknown) => string | null;
}

export function readFuzzedDocument(surface: string): FuzzedDocument {
  const file = new URL(`../../src/contract/${surface}/bundle.json`, import.meta.url);
  const document = JSON.parse(readFileSync(file, 'utf8')) as Document;
  const codes = errorCodesOf(document);
  return {
    operations: operationsOf(document).map(({ id, method, path, operation }) => {
      const body = operation.requestBody && resolve(document, operation.requestBody);
      return {
        id,
        method: method.toUpperCase(),
        path,
        parameters: (operation.parameters ?? []).map(
          (parameter) => resolve(document, parameter) as Parameter,
        ),
        body: body && {
          required: body.required === true,
          content: (body.content ?? {}) as Record<string, MediaType>,
        },
        responses: Object.fromEntries(
          Object.entries(operation.responses ?? {}).map(([status, response]) => [
            status,
            resolve(document, response) as Response,
          ]),
        ),
        isPassthrough: operation['x-passthrough'] === true,
        toleratesQuery: operation['x-tolerates-query'] === true,
        errorCodes: operation['x-error-codes'] ?? [],
        security: operation.security ?? [],
        ignoresCredential: operation['x-ignores-credential'] === true,
      };
    }),
    resolve: (schema) => resolve<Schema>(document, schema),
    statusesOf: (code) => codes[code]?.status ?? [],
    check: createCheck(document),
  };
}

function createCheck(document: Document): FuzzedDocument['check'] {
  const ajv = new Ajv2020({ strict: false, logger: false, coerceTypes: false });
  addFormats.default(ajv);
  ajv.addSchema(document as object, 'document.json');
  const validators = new WeakMap<object, ValidateFunction>();
  return (schema, value) => {
    let validate = validators.get(schema);
    if (validate === undefined) {
      const text = JSON.stringify(schema).replaceAll('"#/', '"document.json#/');
      validate = ajv.compile(JSON.parse(text) as object);
      validators.set(schema, validate);
    }
    if (validate(value)) return null;
    const [error] = validate.errors ?? [];
    return `${error?.instancePath || '/'} ${error?.message} ${JSON.stringify(error?.params)}`;
  };
}
