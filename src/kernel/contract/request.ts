// A request as the contract reads it: path, query and headers by the operation's parameters. What is declared once is
// taken once, and nothing that was sent is passed over.
import { Problem } from '../problem.ts';
import type { Exchange } from './exchange.ts';
import type { ContractOperation } from './operations.ts';

export interface ParsedRequest {
  method: string;
  path: string;
  params: Record<string, string>;
  query: Record<string, unknown>;
  headers: Record<string, unknown>;
  cookies: Record<string, string>;
  requestBody: unknown;
  isForm: boolean;
  raw: Uint8Array;
}

/** What goes through openapi-backend as its request; the exchange's findings ride on it. */
export interface ContractRequest {
  method: string;
  path: string;
  headers: Record<string, never>;
  exchange: Exchange;
  parsed: ParsedRequest | undefined;
  allow: string;
  params: Record<string, string>;
  failure: Problem | undefined;
}

const nothing = new Uint8Array(0);

/** Throws a 400 for a query that cannot be read. */
export function parse(request: ContractRequest, operation: ContractOperation): ParsedRequest {
  const { exchange } = request;
  const headers: Record<string, unknown> = {};
  for (const name of operation.headerNames) {
    const value = exchange.headers[name];
    if (value !== undefined) headers[name] = value;
  }
  return {
    method: request.method,
    path: request.path,
    params: request.params,
    query: exchange.query === '' ? {} : parseQuery(exchange.query, operation),
    headers,
    cookies: {},
    requestBody: undefined,
    isForm: false,
    raw: nothing,
  };
}

function parseQuery(text: string, operation: ContractOperation): Record<string, unknown> {
  // Without a prototype, so that a parameter called `__proto__` is one more undeclared name.
  const query = Object.create(null) as Record<string, unknown>;
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const cut = pair.indexOf('=');
    const name = decodeQuery(cut < 0 ? pair : pair.slice(0, cut));
    const value = cut < 0 ? '' : decodeQuery(pair.slice(cut + 1));
    const parameter = operation.queryParameters.get(name);
    const before = query[name];
    if (parameter?.list)
      query[name] = [...((before as string[]) ?? []), ...(parameter.commas ? value.split(',') : [value])];
    else if (before !== undefined && parameter) throw repeated(name);
    // Somebody else's names may repeat, and nothing that was sent is passed over.
    else query[name] = before === undefined ? value : [before, value].flat();
  }
  return query;
}

function repeated(name: string): Problem {
  const message = 'appears more than once';
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
      'The query holds a percent encoding that cannot be decoded.',
      { cause },
    );
  }
}
