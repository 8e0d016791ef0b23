// The input of an operation: path, query and headers by its declared parameters, and the body.
import { Problem } from '../problem.ts';
import type { ContractOperation } from './operations.ts';
import type { ContractRequest } from './request.ts';

export interface OperationInput {
  path: Record<string, string>;
  query: Record<string, unknown>;
  headers: Record<string, unknown>;
  body: unknown;
  isForm: boolean;
  rawBody: Uint8Array;
}

/** Throws a 400 for a query that cannot be decoded and for a required body that is absent. */
export async function readInput(
  request: ContractRequest,
  operation: ContractOperation,
  path: Record<string, string>,
): Promise<OperationInput> {
  const query = request.query === '' ? {} : parseQuery(request.query, operation);
  const headers = pickHeaders(request, operation);
  const { raw, isPresent, value, isForm } = await request.readBody(operation);
  if (operation.body?.required && !isPresent)
    throw new Problem('bad_request', 'invalid_request', 'This operation needs a body.');
  const body = operation.body?.readSnakeCase === undefined ? value : operation.body.readSnakeCase(value);
  return { path, query, headers, body, isForm, rawBody: raw };
}

function pickHeaders(request: ContractRequest, { headerNames }: ContractOperation): Record<string, unknown> {
  const headers: Record<string, unknown> = {};
  for (const name of headerNames) {
    const value = request.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  return headers;
}

// Checked before Ajv's coercion, which turns blanks into 0 and accepts `0x10` and `1e3` as integers.
const integerPattern = /^-?\d+$/;

function parseQuery(text: string, operation: ContractOperation): Record<string, unknown> {
  // Without a prototype, so that `__proto__` is an ordinary undeclared name.
  const query = Object.create(null) as Record<string, unknown>;
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const separator = pair.indexOf('=');
    const name = decodeQuery(separator < 0 ? pair : pair.slice(0, separator));
    const value = separator < 0 ? '' : decodeQuery(pair.slice(separator + 1));
    const parameter = operation.queryParameters.get(name);
    const previous = query[name];
    if (parameter?.isInteger === true && !integerPattern.test(value))
      throw invalidParameter(name, 'must be an integer');
    if (parameter?.isList) {
      const items = parameter.isCommaSeparated ? value.split(',') : [value];
      query[name] = [...((previous as string[] | undefined) ?? []), ...items];
    } else if (previous !== undefined && parameter) {
      throw invalidParameter(name, 'appears more than once');
    } else {
      // Undeclared names may repeat: an operation that allows them receives every value.
      query[name] = previous === undefined ? value : [previous, value].flat();
    }
  }
  return query;
}

function invalidParameter(name: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `The query parameter \`${name}\` ${message}.`, {
    param: name,
    details: [{ path: name, message }],
  });
}

function decodeQuery(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch (cause) {
    throw new Problem(
      'bad_request',
      'invalid_request',
      'The query contains a percent-encoding that cannot be decoded.',
      { cause },
    );
  }
}
