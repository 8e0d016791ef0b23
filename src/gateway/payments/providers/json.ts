// Reads members out of somebody else's JSON, where anything may be missing or of another type than it was documented.
import { Problem } from '../../../kernel/problem.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

const nothing: JsonObject = Object.freeze({});

/** The object under a name; empty when there is none. */
export function readObject(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : nothing;
}

/** Null also for what the database cannot keep: a NUL, or half of a surrogate pair. */
export function readText(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= 512 && isStorable(value) ? value : null;
}

/** Null for all that is no web address. */
export function readUrl(value: unknown): string | null {
  return typeof value === 'string' && /^https?:\/\//.test(value) && isStorable(value) ? value : null;
}

function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/** A time as a count of such units since 1970; null for none, and for one after the year 9999. */
export function readTime(value: unknown, unitMs: number): Date | null {
  const count = readAmount(value);
  const ms = Number(count) * unitMs;
  return count === null || ms > latestMs ? null : new Date(ms);
}

const latestMs = Date.UTC(9999, 11, 31);

/** The id of a thing that is given by its id or whole. */
export function readId(value: unknown): string | null {
  return readText(value) ?? readText(readObject(value)['id']);
}

/** A whole amount that is not negative; null for everything else, fractions included. */
export function readAmount(value: unknown): bigint | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? BigInt(value) : null;
}

export function readCurrency(value: unknown): string | null {
  return readText(value)?.toLowerCase() ?? null;
}

/** The top of a signed event. Throws 400 for what is no JSON object. */
export function parseEvent(body: Uint8Array): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body).toString('utf8'));
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_json', 'The event is not JSON.', { cause });
  }
  const members = readObject(value);
  if (readText(members['id']) === null)
    throw new Problem(
      'bad_request',
      'invalid_request',
      '`id` is no text of 1 to 512 characters, none of them a NUL.',
      { param: 'id' },
    );
  return members;
}

/** One answer for every way in which a signature can be wrong. */
export function invalidSignature(): Problem {
  return new Problem('bad_request', 'invalid_signature', 'The signature does not hold.');
}
