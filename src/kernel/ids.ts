// Names for things: `prefix_` and a UUIDv7 in 26 lower-case Crockford base32 characters. They sort by the
// time they were made, within this process strictly, so that an index on them grows at its end.
import { randomFillSync } from 'node:crypto';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

export type MakeId = (prefix: string) => string;

/** A maker of its own order and its own source of time. */
export function createIds(now: () => number): MakeId {
  let lastMs = -1;
  let sequence = 0;
  return (prefix) => {
    const ms = now();
    if (ms > lastMs) {
      lastMs = ms;
      // Half of the twelve bits are left for what follows within this millisecond.
      sequence = chance.readUInt16BE(draw(2)) & 0x7ff;
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

/** An id of now, such as `usr_01k…`. */
export const id: MakeId = createIds(Date.now);

// Chance is drawn for many ids at once; each request needs an id, and asking for a few bytes costs more than
// all the rest of it.
const chance = Buffer.alloc(4096);
let drawn = chance.length;

/** Where so many bytes stand that were not used before. */
function draw(bytes: number): number {
  if (drawn + bytes > chance.length) {
    randomFillSync(chance);
    drawn = 0;
  }
  drawn += bytes;
  return drawn - bytes;
}

/**
 * RFC 9562, version 7: 48 bits of milliseconds, version, 12 of sequence, variant, 62 of chance. The first ten
 * characters are exactly the milliseconds, so the rest fits into two numbers of 40 bits.
 */
function encode(ms: number, sequence: number): string {
  const at = draw(8);
  const high = chance.readUIntBE(at, 3) & 0x3fffff;
  const low = chance.readUIntBE(at + 3, 5);
  const middle = (0x7000 + sequence) * 2 ** 24 + 0x800000 + high;
  return base32(ms, 10) + base32(middle, 8) + base32(low, 8);
}

function base32(value: number, length: number): string {
  let text = '';
  for (let left = length, rest = value; left > 0; left -= 1, rest = Math.floor(rest / 32))
    text = alphabet[rest % 32] + text;
  return text;
}
