// The digest by which two calls with one Idempotency-Key count as the same request.
import { webcrypto } from 'node:crypto';
import { digest } from './digest.ts';

/** The parts of a call that distinguish its request from others. */
export interface DigestedRequest {
  path: unknown;
  query: unknown;
  /** Headers that belong to the request as its body does; absent without any. */
  headers?: Readonly<Record<string, unknown>> | undefined;
  body: unknown;
  rawBody: Uint8Array;
  isForm?: boolean;
}

// Sorting the members of a larger body would block the event loop, so a repetition of such a body must
// have the same bytes.
const maxComparedAsValue = 256 * 1024;

export async function digestRequest(request: DigestedRequest): Promise<Buffer> {
  const { path, query, headers, body, rawBody, isForm = false } = request;
  const values = headers === undefined ? [path, query] : [path, query, headers];
  const parts = JSON.stringify(values.map(canonicalValue));
  // Clients choose a new boundary for each repetition of a form, so its members are compared.
  if (isForm) return digest(parts, 'form', JSON.stringify(canonicalValue(await withFileDigests(body))));
  if (rawBody.byteLength > maxComparedAsValue) return digest(parts, await digestInPool(rawBody));
  // A JSON body is the same whatever the order and spacing of its members.
  return digest(parts, body !== undefined && isJson(body) ? JSON.stringify(canonicalValue(body)) : rawBody);
}

/** The value with a digest instead of each file's bytes. */
async function withFileDigests(value: unknown): Promise<unknown> {
  if (value instanceof Uint8Array) return { sha256: (await digestInPool(value)).toString('hex') };
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return Promise.all(value.map(withFileDigests));
  const members = Object.entries(value).map(async ([name, member]) => [name, await withFileDigests(member)]);
  return Object.fromEntries((await Promise.all(members)) as [string, unknown][]);
}

async function digestInPool(bytes: Uint8Array): Promise<Buffer> {
  return Buffer.from(await webcrypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
}

/** Whether the value came from JSON and not from a form with files. */
function isJson(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return !(value instanceof Uint8Array) && Object.values(value).every(isJson);
}

function canonicalValue(value: unknown): unknown {
  // The first item distinguishes a list from an object, which becomes the sorted list of its members.
  if (Array.isArray(value)) return ['list', ...value.map(canonicalValue)];
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return ['object', ...members.map(([name, member]) => [name, canonicalValue(member)])];
}
