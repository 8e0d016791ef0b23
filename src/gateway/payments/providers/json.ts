// Reads members of provider JSON, in which any member may be missing or have an undocumented type.
import { asRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';

/**
 * Null for anything but a string of 1 to 512 characters that PostgreSQL can store.
 */
export function readText(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= 512 && isStorable(value) ? value : null;
}

/** An http or https address, or null. */
export function readUrl(value: unknown): string | null {
  return typeof value === 'string' && /^https?:\/\//.test(value) && isStorable(value) ? value : null;
}

// PostgreSQL refuses NUL and lone surrogates.
function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/** A time as a count of units since 1970; null when it is missing or after the year 9999. */
export function readTime(value: unknown, { unitMs }: { unitMs: number }): Date | null {
  const count = readAmount(value);
  const ms = Number(count) * unitMs;
  return count === null || ms > latestMs ? null : new Date(ms);
}

const latestMs = Date.UTC(9999, 11, 31);

/** The ID of an object that is either expanded or represented by its ID. */
export function readId(value: unknown): string | null {
  return readText(value) ?? readText(asRecord(value)['id']);
}

/** A whole amount of 0 or more; null for anything else, fractions included. */
export function readAmount(value: unknown): bigint | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? BigInt(value) : null;
}

export function readCurrency(value: unknown): string | null {
  return readText(value)?.toLowerCase() ?? null;
}

/** Parses the body of a signed event. Throws 400 unless it is a JSON object with an ID. */
export function parseEvent(body: Uint8Array): JsonRecord {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body).toString('utf8'));
  } catch (cause) {
    throw new Problem('bad_request', 'invalid_json', 'The event is not JSON.', { cause });
  }
  const event = asRecord(value);
  if (readText(event['id']) === null)
    throw new Problem(
      'bad_request',
      'invalid_request',
      '`id` must be a string of 1 to 512 characters without a NUL.',
      { param: 'id' },
    );
  return event;
}

/**
 * The error for a missing, malformed, expired or wrong signature: one for all, to not help
 * attackers.
 */
export function invalidSignature(): Problem {
  return new Problem('bad_request', 'invalid_signature', 'The signature is not valid.');
}
