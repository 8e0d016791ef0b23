// Ids: `prefix_` and a UUIDv7 in 26 lower-case Crockford base32 characters. They sort by
// creation time, strictly within this process, so that an index on them grows at its end.
import { randomFillSync } from 'node:crypto';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';
const maxSequence = 0xfff;

export type MakeId = (prefix: string) => string;

/** Creates ids with their own sequence and clock. */
export function createIds(now: () => number): MakeId {
  let lastMs = -1;
  let sequence = 0;
  return (prefix) => {
    const ms = now();
    if (ms > lastMs) {
      lastMs = ms;
      // A start in the lower half leaves at least 2,048 further ids for this millisecond.
      sequence = randomPool.readUInt16BE(reserveRandomBytes(2)) & 0x7ff;
    } else if (sequence < maxSequence) {
      // The same millisecond, or the clock went back: count on from the last id.
      sequence += 1;
    } else {
      // Every sequence number of the millisecond is used: go ahead of the clock.
      lastMs += 1;
      sequence = 0;
    }
    return `${prefix}_${encode(lastMs, sequence)}`;
  };
}

/** An id with the current time, such as `usr_01k…`. */
export const id: MakeId = createIds(Date.now);

// Random bytes for many ids at once: every request needs an id, and a call of randomFillSync takes
// longer than all other work for an id.
const randomPool = Buffer.alloc(4096);
let usedBytes = randomPool.length;

/** Reserves so many unused bytes of the pool; returns their offset in it. */
function reserveRandomBytes(bytes: number): number {
  if (usedBytes + bytes > randomPool.length) {
    randomFillSync(randomPool);
    usedBytes = 0;
  }
  usedBytes += bytes;
  return usedBytes - bytes;
}

// The version 7 (0b0111) above the 12 bits of the sequence, and the variant 0b10 above 22 random bits.
const versionBits = 0x7000;
const variantBits = 0x800000;

/**
 * RFC 9562, version 7: 48 bits of milliseconds, 4 of version, 12 of sequence, 2 of variant, 62 random
 * bits. The first ten characters are exactly the milliseconds, so the rest fits into two numbers of 40
 * bits.
 */
function encode(ms: number, sequence: number): string {
  const offset = reserveRandomBytes(8);
  const randomHigh = randomPool.readUIntBE(offset, 3) & 0x3fffff;
  const randomLow = randomPool.readUIntBE(offset + 3, 5);
  const middle = (versionBits + sequence) * 2 ** 24 + variantBits + randomHigh;
  return toBase32(ms, 10) + toBase32(middle, 8) + toBase32(randomLow, 8);
}

function toBase32(value: number, length: number): string {
  let text = '';
  for (let index = 0, rest = value; index < length; index += 1, rest = Math.floor(rest / 32))
    text = alphabet[rest % 32] + text;
  return text;
}
