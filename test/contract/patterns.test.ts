// Every regular expression that strangers' text is held against by the contracts: none of them takes longer than its
// text is long, however the text is made.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import classic from '../../src/contract/agent-classic/bundle.json' with { type: 'json' };
import agent from '../../src/contract/agent/bundle.json' with { type: 'json' };
import gateway from '../../src/contract/gateway/bundle.json' with { type: 'json' };

const seed = 20_261_121;
// From where doubling shows to what a body may hold, in steps so small that none hangs where the one before was quick.
const lengths = [
  ...Array.from({ length: 49 }, (_, n) => 16 + n),
  100,
  200,
  400,
  800,
  1_600,
  3_200,
  10_000,
  100_000,
];
const mostMs = 1_000;

function patternsOf(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const own = 'pattern' in value && typeof value.pattern === 'string' ? [value.pattern] : [];
  return [...own, ...Object.values(value).flatMap(patternsOf)];
}

/** Texts that fit, or nearly: those are the ones in which a search goes astray. */
function samplesOf(pattern: RegExp): string[] {
  const plain = ['', 'a', '0', '-', '_.', '/', ' ', 'é', 'a@a', 'a;'];
  try {
    return [
      ...plain,
      ...fc
        .sample(fc.stringMatching(pattern, { size: 'xsmall' }), { numRuns: 4, seed })
        .map((text) => text.slice(0, 24)),
    ];
  } catch {
    // What the generator cannot read, such as a class by its Unicode name.
    return plain;
  }
}

/** The sample with one of its pieces repeated up to the length, and an end that never fits. */
function pumped(sample: string, length: number): string[] {
  const texts: string[] = [];
  for (let from = 0; from <= sample.length; from += 1) {
    for (const width of length > 10_000 ? [1] : [1, 2, 3]) {
      const piece = sample.slice(from, from + width);
      if (piece.length === width)
        texts.push(
          `${sample.slice(0, from)}${piece.repeat(Math.ceil(length / width))}${sample.slice(from + width)}\0`,
        );
    }
  }
  return texts;
}

/** The text that took longest, and how long; the first that took too long ends the search. */
function slowest(pattern: RegExp): { ms: number; text: string } {
  let worst = { ms: 0, text: '' };
  const samples = samplesOf(pattern);
  for (const length of lengths) {
    for (const text of samples.flatMap((sample) => pumped(sample, length))) {
      const startedMs = performance.now();
      pattern.test(text);
      const ms = performance.now() - startedMs;
      if (ms > worst.ms) worst = { ms, text: text.slice(0, 60) };
      if (ms > mostMs) return worst;
    }
  }
  return worst;
}

const patterns = [...new Set([gateway, agent, classic].flatMap(patternsOf))];

describe('the patterns of the contracts', () => {
  test('are many', () => expect(patterns.length).toBeGreaterThan(30));

  test.each(patterns)('%s takes no time over any text', (pattern) => {
    const { ms, text } = slowest(new RegExp(pattern, 'u'));
    expect(ms, JSON.stringify(text)).toBeLessThan(mostMs);
  });

  test.each(['^(a+)+$', '^a*a*a*b$'])('would be caught as %s', (pattern) => {
    expect(slowest(new RegExp(pattern, 'u')).ms).toBeGreaterThan(mostMs);
  });
});
