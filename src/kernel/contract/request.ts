// One request on its way through the contract. The server creates it (http/request.ts); the pipeline fills in the
// operation and the identity.
import type { Log } from '../log.ts';
import type { CallNote } from './operation.ts';
import type { ContractOperation } from './operations.ts';

export interface ContractRequest {
  readonly method: string;
  /** As received, still encoded, without the query. */
  readonly path: string;
  /** As received, without the question mark. */
  readonly query: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Parsed from the header `Authorization`. */
  readonly credential: Credential;
  readonly requestId: string;
  readonly remoteAddress: string;
  readonly log: Log;
  /** Aborted when the client is gone before the end of the response, and at the end of a drain. */
  readonly signal: AbortSignal;
  timing(name: string, durationMs: number): void;
  note(fields: CallNote): void;
  readBody(operation: ContractOperation): RequestBody | Promise<RequestBody>;
  /** Set once the route is matched. */
  operation: ContractOperation | undefined;
  /** Set once the operation is known; the guest's until the credential is checked. */
  identity: { kind: string } | undefined;
  /** True from the call of the handler on: any response is then the operation's own. */
  isHandled: boolean;
  /** Sent with any response; a reply's own headers win. */
  responseHeaders: Record<string, string> | undefined;
}

export interface RequestBody {
  raw: Uint8Array;
  isPresent: boolean;
  /** The parsed JSON document, or the members of a form; undefined when the body is absent or is neither. */
  value: unknown;
  isForm: boolean;
}

/** What the header `Authorization` holds. Anything but one well-formed bearer token is `malformed`. */
export type Credential = { kind: 'none' } | { kind: 'malformed' } | { kind: 'bearer'; token: string };

const noCredential: Credential = { kind: 'none' };
const malformedCredential: Credential = { kind: 'malformed' };

// Our tokens have 56 characters. Longer values are refused before a lookup.
const maxHeaderLength = 256;
// RFC 9110 compares the scheme without case. Other spellings (two spaces, a comma) are refused, because an intermediary
// may read them differently.
const bearerShape = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

export function parseCredential(header: string | string[] | undefined): Credential {
  if (header === undefined) return noCredential;
  if (typeof header !== 'string' || header.length > maxHeaderLength) return malformedCredential;
  const token = bearerShape.exec(header)?.[1];
  return token === undefined ? malformedCredential : { kind: 'bearer', token };
}
