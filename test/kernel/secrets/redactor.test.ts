// Many, long and overlapping secrets are redacted like one short secret.
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';

describe('a redactor', () => {
  test('hides 500 values of up to 32 KiB in every form', () => {
    const redactor = createRedactor();
    const values = Array.from({ length: 500 }, (_, index) =>
      randomBytes(index % 50 === 0 ? 16 * 1024 : 24).toString('hex'),
    );
    values.push('é'.repeat(16 * 1024));
    for (const value of values) redactor.hold(value);
    for (const value of values) {
      const bytes = Buffer.from(value);
      for (const form of [
        value,
        bytes.toString('base64'),
        bytes.toString('hex'),
        encodeURIComponent(value),
      ]) {
        expect(redactor.hide(`before ${form} after`)).toMatch(/^before \[redacted\]=* after$/);
      }
    }
  });

  test('skips a text without secrets quickly', () => {
    const redactor = createRedactor();
    for (let count = 0; count < 500; count += 1) redactor.hold(randomBytes(24).toString('base64'));
    const line = 'an answer went out after 12 ms to 127.0.0.1 '.repeat(5);
    redactor.hide(line);
    const startedMs = performance.now();
    for (let count = 0; count < 10_000; count += 1) redactor.hide(line);
    expect(performance.now() - startedMs).toBeLessThan(2_000);
  });

  test('hides overlapping and adjacent secrets as one', () => {
    const redactor = createRedactor();
    redactor.hold('abcdefgh');
    redactor.hold('efghijkl');
    expect(redactor.hide('x abcdefghijkl y')).toBe('x [redacted] y');
    expect(redactor.hide('abcdefghabcdefgh, and abcdefgh')).toBe('[redacted], and [redacted]');
  });

  test('hides every word of a secret after "Bearer"', () => {
    const redactor = createRedactor();
    redactor.hold('two words of a secret');
    expect(redactor.hide('Bearer two words of a secret.')).toBe('Bearer [redacted].');
  });
});
