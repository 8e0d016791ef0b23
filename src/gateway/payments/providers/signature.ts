// Whether a webhook comes from whom it says it does. Over the bytes as they came, before anything is read out of
// them, and compared in a time that tells nothing.
import { createHmac, timingSafeEqual } from 'node:crypto';

const digestBytes = 32;
// Both ways: an attacker who sets the clock forward must not get a signature that is good for ever.
const windowSeconds = 300n;
const mostSignatures = 16;

/** Stripe's header: a time, and one or more `v1` while a secret is being replaced. Other schemes count for nothing. */
export function verifyStripeSignature(
  body: Uint8Array,
  header: string | undefined,
  { secrets, now }: { secrets: readonly string[]; now: Date },
): boolean {
  const parsed = readStripeHeader(header);
  if (parsed === null) return false;
  const age = BigInt(Math.floor(now.getTime() / 1000)) - BigInt(parsed.time);
  if (age > windowSeconds || age < -windowSeconds) return false;
  const expected = secrets.map((secret) =>
    createHmac('sha256', secret).update(`${parsed.time}.`).update(body).digest(),
  );
  return anyEqual(expected, parsed.signatures);
}

/** Creem's header: the hexadecimal HMAC of the body, without a time. */
export function verifyCreemSignature(
  body: Uint8Array,
  header: string | undefined,
  { secrets }: { secrets: readonly string[] },
): boolean {
  const signature = digestOf(header ?? '');
  if (signature === null) return false;
  return anyEqual(
    secrets.map((secret) => createHmac('sha256', secret).update(body).digest()),
    [signature],
  );
}

function readStripeHeader(header: string | undefined): { time: string; signatures: Buffer[] } | null {
  if (header === undefined) return null;
  let time: string | null = null;
  const signatures: Buffer[] = [];
  for (const part of header.split(',')) {
    const cut = part.indexOf('=');
    const [name, value] =
      cut < 0 ? [part.trim(), ''] : [part.slice(0, cut).trim(), part.slice(cut + 1).trim()];
    if (name === 't') {
      // A second time would make it a matter of taste which one counts; so would two headers, which arrive as one.
      if (time !== null || !/^\d{1,12}$/.test(value)) return null;
      time = value;
    }
    const signature = name === 'v1' ? digestOf(value) : null;
    if (signature !== null) signatures.push(signature);
  }
  return time === null || signatures.length === 0 || signatures.length > mostSignatures
    ? null
    : { time, signatures };
}

/** Exactly 32 bytes in lower-case hexadecimal, the one spelling that is ever sent; null for anything else. */
function digestOf(text: string): Buffer | null {
  return /^[0-9a-f]{64}$/.test(text) ? Buffer.from(text, 'hex') : null;
}

function anyEqual(expected: readonly Buffer[], given: readonly Buffer[]): boolean {
  let isEqual = false;
  // All of them, always: which one fits is nobody's business either.
  for (const one of expected) {
    for (const other of given)
      if (other.byteLength === digestBytes && timingSafeEqual(one, other)) isEqual = true;
  }
  return isEqual;
}
