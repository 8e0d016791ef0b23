// The regular expressions of the contracts, which the servers match against callers' strings, take time
// proportional to the length of the string.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import classic from '../../src/contract/agent-classic/bundle.json' with { type: 'json' };
import agent from '../../src/contract/agent/bundle.json' with { type: 'json' };
import gateway from '../../src/contract/gateway/bundle.json' with { type: 'json' };

const seed = 20_261_121;
// Each length from 16 to 64, where exponential growth shows, then steps up to the size of a body.
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
const limitMs = 1_000;

function patternsOf(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const ownPatterns = 'pattern' in value && typeof value.pattern === 'string' ? [value.pattern] : [];
  return [...ownPatterns, ...Object.values(value).flatMap(patternsOf)];
}

/** Texts that match or nearly match: these make a search backtrack. */
function samplesOf(pattern: RegExp): string[] {
  const samples = ['', 'a', '0', '-', '_.', '/', ' ', 'é', 'a@a', 'a;'];
  try {
    return [
      ...samples,
      ...fc
        .sample(fc.stringMatching(pattern, { size: 'xsmall' }), { numRuns: 4, seed })
        .map((text) => text.slice(0, 24)),
    ];
  } catch {
    // fast-check cannot read some patterns, such as Unicode classes.
    return samples;
  }
}

/** Variants of the sample: one piece repeated up to the length, and an end that never matches. */
function pumpSamples(sample: string, length: number): string[] {
  const texts: string[] = [];
  for (let start = 0; start <= sample.length; start += 1) {
    for (const width of length > 10_000 ? [1] : [1, 2, 3]) {
      const piece = sample.slice(start, start + width);
      if (piece.length !== width) continue;
      const repetition = piece.repeat(Math.ceil(length / width));
      texts.push(`${sample.slice(0, start)}${repetition}${sample.slice(start + width)}\0`);
    }
  }
  return texts;
}

/** The slowest text and its time. The first text above the limit ends the search. */
function findSlowest(pattern: RegExp): { ms: number; text: string } {
  let slowest = { ms: 0, text: '' };
  const samples = samplesOf(pattern);
  for (const length of lengths) {
    for (const text of samples.flatMap((sample) => pumpSamples(sample, length))) {
      const startedMs = processorMs();
      pattern.test(text);
      const ms = processorMs() - startedMs;
      if (ms > slowest.ms) slowest = { ms, text: text.slice(0, 60) };
      if (ms > limitMs) return slowest;
    }
  }
  return slowest;
}

/** Processor time of this thread, which does not grow while other work has the processor. */
function processorMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

const patterns = [...new Set([gateway, agent, classic].flatMap(patternsOf))];

test('the contracts have more than 30 patterns', () => expect(patterns.length).toBeGreaterThan(30));

describe('a pattern of the contracts', () => {
  test.each(patterns)('takes less than a second for slow candidates: %s', (pattern) => {
    const { ms, text } = findSlowest(new RegExp(pattern, 'u'));
    expect(ms, JSON.stringify(text)).toBeLessThan(limitMs);
  });
});

test.each(['^(a+)+$', '^a*a*a*b$'])('the measurement of patterns finds the slow %s', (pattern) => {
  expect(findSlowest(new RegExp(pattern, 'u')).ms).toBeGreaterThan(limitMs);
});
