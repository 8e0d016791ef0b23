// Ids: `prefix_` and a UUIDv7 in 26 lower-case Crockford base32 characters. They sort by
// creation time, strictly within this process, so that an index on them grows at its end.
import { randomFillSync } from 'node:crypto';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

export type MakeId = (prefix: string) => string;

/** Creates ids with their own sequence and clock. */
export function createIds(now: () => number): MakeId {
  let lastMs = -1;
  let sequence = 0;
  return (prefix) => {
    const ms = now();
    if (ms > lastMs) {
      lastMs = ms;
      // Half of the twelve bits stay free for further ids of this millisecond.
      sequence = randomPool.readUInt16BE(takeRandomBytes(2)) & 0x7ff;
    } else if (sequence < 0xfff) {
      sequence += 1;
    } else {
      // The millisecond is full, or the clock went back: borrow from the next.
      lastMs += 1;
      sequence = 0;
    }
    return `${prefix}_${encode(lastMs, sequence)}`;
  };
}

/** An id with the current time, such as `usr_01k…`. */
export const id: MakeId = createIds(Date.now);

// Random bytes for many ids at once: every request needs an id, and a call for a few
// bytes costs more than the rest of it.
const randomPool = Buffer.alloc(4096);
let usedBytes = randomPool.length;

/** The offset of so many unused random bytes in the pool. */
function takeRandomBytes(bytes: number): number {
  if (usedBytes + bytes > randomPool.length) {
    randomFillSync(randomPool);
    usedBytes = 0;
  }
  usedBytes += bytes;
  return usedBytes - bytes;
}

/**
 * RFC 9562, version 7: 48 bits of milliseconds, version, 12 of sequence, variant, 62 random bits. The
 * first ten characters are exactly the milliseconds, so the rest fits into two numbers of 40 bits.
 */
function encode(ms: number, sequence: number): string {
  const offset = takeRandomBytes(8);
  const highBits = randomPool.readUIntBE(offset, 3) & 0x3fffff;
  const lowBits = randomPool.readUIntBE(offset + 3, 5);
  const middleBits = (0x7000 + sequence) * 2 ** 24 + 0x800000 + highBits;
  return toBase32(ms, 10) + toBase32(middleBits, 8) + toBase32(lowBits, 8);
}

function toBase32(value: number, length: number): string {
  let text = '';
  for (let index = 0, rest = value; index < length; index += 1, rest = Math.floor(rest / 32))
    text = alphabet[rest % 32] + text;
  return text;
}
