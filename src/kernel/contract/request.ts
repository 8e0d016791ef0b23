// One request as the contract's code sees it. The server creates it (http/request.ts); the
// pipeline sets the operation and the identity.
import type { ErrorDialect } from '../error-dialects.ts';
import type { Log } from '../log.ts';
import type { CallNote } from './operation.ts';
import type { ContractOperation } from './operations.ts';

export interface ContractRequest {
  readonly method: string;
  /** The path as received: encoded and without the query. */
  readonly path: string;
  /** The query as received, without the question mark. */
  readonly query: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /**
   * The credential in `Authorization`. Once the operation is known, its declared key headers may hold
   * the credential too.
   */
  credential: Credential;
  readonly requestId: string;
  readonly remoteAddress: string;
  readonly log: Log;
  /** Aborted when the client disconnects before the end of the response, and at the end of a drain. */
  readonly signal: AbortSignal;
  timing(name: string, durationMs: number): void;
  note(fields: CallNote): void;
  readBody(operation: ContractOperation): RequestBody | Promise<RequestBody>;
  /** Undefined until the route is matched. */
  operation: ContractOperation | undefined;
  /** The dialect of its error responses: from its operation, or from the operations that share its path. */
  errorDialect: ErrorDialect | undefined;
  /**
   * Undefined until the operation is known; then the guest's identity until the credential is
   * checked.
   */
  identity: { kind: string } | undefined;
  /** True once the handler is called; from then on every reply must be one that the operation declares. */
  isHandled: boolean;
  /** Headers of every response to the request; a reply's own headers take precedence. */
  responseHeaders: Record<string, string> | undefined;
}

export interface RequestBody {
  raw: Uint8Array;
  isPresent: boolean;
  /** The parsed JSON document, or the members of a form; undefined when the body is absent or is neither. */
  value: unknown;
  isForm: boolean;
}

/**
 * The credential of the request. A value that is not exactly one well-formed token is
 * `malformed`. `keyHeader` names the header of a token outside of `Authorization`.
 */
export type Credential =
  | { kind: 'none' }
  | { kind: 'malformed' }
  | { kind: 'bearer'; token: string; keyHeader?: string }
  /** Two headers with different values. */
  | { kind: 'conflict'; headers: readonly [string, string] };

const noCredential: Credential = { kind: 'none' };
const malformedCredential: Credential = { kind: 'malformed' };

// Our tokens have 56 characters. Longer values are rejected before a lookup.
const maxHeaderLength = 256;
// RFC 9110 compares the scheme case-insensitively. Other spellings (two spaces, a
// comma) are rejected, because an intermediary may read them differently.
const bearerShape = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;
const tokenShape = /^[A-Za-z0-9._~+/-]+=*$/;

export function parseCredential(header: string | string[] | undefined): Credential {
  if (header === undefined) return noCredential;
  if (typeof header !== 'string' || header.length > maxHeaderLength) return malformedCredential;
  const token = bearerShape.exec(header)?.[1];
  return token === undefined ? malformedCredential : { kind: 'bearer', token };
}

/**
 * The credential of a request to an operation that also accepts a bare token in one of
 * `keyHeaders`. The same token in several headers is one credential: some clients send it twice.
 */
export function readCredential(
  { headers }: Pick<ContractRequest, 'headers'>,
  keyHeaders: Iterable<string>,
): Credential {
  let credential = parseCredential(headers['authorization']);
  let source = 'authorization';
  for (const keyHeader of keyHeaders) {
    const value = headers[keyHeader];
    if (value === undefined) continue;
    const next = parseKey(value, keyHeader);
    if (credential.kind === 'none') credential = next;
    else if (!isSameToken(credential, next)) return { kind: 'conflict', headers: [source, keyHeader] };
    else continue;
    source = keyHeader;
  }
  return credential;
}

function parseKey(value: string | string[], keyHeader: string): Credential {
  if (typeof value !== 'string' || value.length > maxHeaderLength || !tokenShape.test(value))
    return malformedCredential;
  return { kind: 'bearer', token: value, keyHeader };
}

function isSameToken(firstCredential: Credential, secondCredential: Credential): boolean {
  return (
    firstCredential.kind === 'bearer' &&
    secondCredential.kind === 'bearer' &&
    firstCredential.token === secondCredential.token
  );
}
