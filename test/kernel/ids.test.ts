import { describe, expect, it } from 'vitest';
import { createIds, id } from '../../src/kernel/ids.ts';

describe('id', () => {
  it('is a prefix and 26 lower-case Crockford characters', () => {
    expect(id('usr')).toMatch(/^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
  });

  it('encodes an RFC 9562 UUID version 7 with its time', () => {
    const text = createIds(() => 0x0123456789ab)('usr').slice(4);
    const value = [...text].reduce(
      (sum, letter) => sum * 32n + BigInt('0123456789abcdefghjkmnpqrstvwxyz'.indexOf(letter)),
      0n,
    );
    const hex = value.toString(16).padStart(32, '0');
    expect(hex.slice(0, 12)).toBe('0123456789ab');
    expect(hex[12]).toBe('7');
    expect('89ab').toContain(hex[16]);
  });

  it('sorts by creation, even when the clock goes back', () => {
    let ms = 1_000_000;
    const makeId = createIds(() => ms);
    const ids = Array.from({ length: 20_000 }, (_, index) => {
      if (index === 10_000) ms -= 500;
      return makeId('evt');
    });
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(ids).size).toBe(ids.length);
  });
});
