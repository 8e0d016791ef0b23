// Verifies webhook signatures (HMAC-SHA256) over the received bytes, before the body
// is parsed, in constant time.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { unixSeconds } from '../../../kernel/clock.ts';

const digestBytes = 32;
// The tolerance applies in both directions: a signature with a time in the future must not stay
// valid forever.
const toleranceSeconds = 300n;
const maxSignatures = 16;

/**
 * Stripe's header has a time and one `v1` signature, or several while a secret is being rotated.
 * Signatures of other schemes are ignored.
 */
export function verifyStripeSignature(
  body: Uint8Array,
  header: string | undefined,
  { secrets, now }: { secrets: readonly string[]; now: Date },
): boolean {
  const signedHeader = parseStripeHeader(header);
  if (signedHeader === null) return false;
  const age = BigInt(unixSeconds(now)) - BigInt(signedHeader.time);
  if (age > toleranceSeconds || age < -toleranceSeconds) return false;
  const expected = secrets.map((secret) =>
    createHmac('sha256', secret).update(`${signedHeader.time}.`).update(body).digest(),
  );
  return matchesAny(expected, signedHeader.signatures);
}

/** Creem's header is the hexadecimal HMAC of the body, without a time. */
export function verifyCreemSignature(
  body: Uint8Array,
  header: string | undefined,
  { secrets }: { secrets: readonly string[] },
): boolean {
  const signature = parseDigest(header ?? '');
  if (signature === null) return false;
  return matchesAny(
    secrets.map((secret) => createHmac('sha256', secret).update(body).digest()),
    [signature],
  );
}

function parseStripeHeader(header: string | undefined): { time: string; signatures: Buffer[] } | null {
  if (header === undefined) return null;
  let time: string | null = null;
  const signatures: Buffer[] = [];
  for (const part of header.split(',')) {
    const separator = part.indexOf('=');
    const nameEnd = separator < 0 ? part.length : separator;
    const name = part.slice(0, nameEnd).trim();
    const value = part.slice(nameEnd + 1).trim();
    if (name === 't') {
      // Refuse a header with two times, as it is unclear which of them is signed. A repeated header
      // arrives as one joined value.
      if (time !== null || !/^\d{1,12}$/.test(value)) return null;
      time = value;
    }
    const signature = name === 'v1' ? parseDigest(value) : null;
    if (signature !== null) signatures.push(signature);
  }
  return time === null || signatures.length === 0 || signatures.length > maxSignatures
    ? null
    : { time, signatures };
}

/** 32 bytes in lower-case hexadecimal, as both providers send them; null for anything else. */
function parseDigest(text: string): Buffer | null {
  return /^[0-9a-f]{64}$/.test(text) ? Buffer.from(text, 'hex') : null;
}

function matchesAny(expected: readonly Buffer[], signatures: readonly Buffer[]): boolean {
  let isMatch = false;
  // Compare every pair, so that the duration does not reveal which pair matches.
  for (const digest of expected) {
    for (const candidate of signatures)
      if (candidate.byteLength === digestBytes && timingSafeEqual(digest, candidate)) isMatch = true;
  }
  return isMatch;
}
