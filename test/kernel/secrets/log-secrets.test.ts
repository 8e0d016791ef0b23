// No live secret appears in a log line, in any position or encoding (property-based). SEED=<number>
// repeats a run.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';

const seed = Number(process.env['SEED'] ?? 20261121);
const minimumLength = 6;

const forms: Record<string, (value: string) => string> = {
  plain: (value) => value,
  serialized: (value) => JSON.stringify({ value }),
  'url-encoded': (value) => encodeURIComponent(value.toWellFormed()),
  base64: (value) => Buffer.from(value).toString('base64'),
  base64url: (value) => Buffer.from(value).toString('base64url'),
  hexadecimal: (value) => Buffer.from(value).toString('hex'),
};

const places: Record<string, (log: ReturnType<typeof createLog>, text: string) => void> = {
  message: (log, text) => log.info({}, text),
  member: (log, text) => log.info({ note: `before ${text} after`, n: 1 }, 'line'),
  name: (log, text) => log.info({ [`x${text}`]: 1 }, 'line'),
  nested: (log, text) => log.info({ a: { b: [{ c: text }] } }, 'line'),
  'nested name': (log, text) => log.info({ a: { [text]: { [text]: true } } }, 'line'),
  child: (log, text) => log.child({ bound: text }).warn({}, 'line'),
  error: (log, text) =>
    log.error(
      { err: new Error(text, { cause: Object.assign(new Error('inner'), { detail: text }) }) },
      'line',
    ),
  'after a line break': (log, text) => log.info({ note: `\n${text}\n` }, `\t${text}`),
  'after a backslash': (log, text) => log.info({ note: `\\${text}\\` }, 'line'),
};

const secret = fc.oneof(
  fc.string({ minLength: minimumLength, maxLength: 60 }),
  fc.string({ unit: 'grapheme', minLength: minimumLength, maxLength: 30 }),
  fc.string({
    unit: fc.constantFrom('"', '\\', 'n', 'u', '0', '\n', '/', '+', 'é', '😀'),
    minLength: minimumLength,
    maxLength: 24,
  }),
  fc.stringMatching(/^\d{6,15}$/),
);

/** All strings within the line's document, including names, and the numbers as strings. */
function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value === 'number') return [String(value)];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [name, ...textsOf(member)]);
}

describe('a line of the log', () => {
  test.each(Object.keys(places))(
    'shows no live secret, in any form, as: %s',
    (place) => {
      fc.assert(
        fc.property(
          secret,
          fc.constantFrom(...Object.keys(forms)),
          fc.array(secret, { maxLength: 5 }),
          (value, form, otherValues) => {
            // Exclude values that occur in the texts of these lines themselves.
            fc.pre(!'[redacted] inner Error stack line before after'.includes(value));
            const lines: string[] = [];
            const redactor = createRedactor();
            for (const secret of [...otherValues, value]) redactor.hold(secret);
            const log = createLog({
              level: 'debug',
              redactor,
              write: (line) => lines.push(line),
              clock: { now: () => new Date(0) },
            });
            places[place]?.(log, forms[form]?.(value) ?? '');
            expect(lines).toHaveLength(1);
            const {
              level: _level,
              time: _time,
              ...rest
            } = JSON.parse(lines[0] ?? '') as Record<string, unknown>;
            for (const text of textsOf(rest)) {
              for (const encoding of ['plain', 'url-encoded', 'hexadecimal'])
                expect(text.includes(forms[encoding]?.(value) ?? '')).toBe(false);
              expect(text.includes(Buffer.from(value).toString('base64').replace(/=+$/, ''))).toBe(false);
            }
          },
        ),
        { seed, numRuns: 300 },
      );
    },
    60_000,
  );

  test('shows no secret of digits that was logged as a number', () => {
    const lines: string[] = [];
    const redactor = createRedactor();
    redactor.hold('314159265');
    const log = createLog({ level: 'info', redactor, write: (line) => lines.push(line) });
    log.info({ pin: 314159265, list: [314159265n], deep: { pin: 314159265 } }, 'line');
    expect(lines.join('')).not.toContain('314159265');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      pin: '[redacted]',
      list: ['[redacted]'],
      deep: { pin: '[redacted]' },
    });
  });

  test('is suspected if one of its strings would be redacted', () => {
    fc.assert(
      fc.property(
        fc.array(secret, { maxLength: 4 }),
        fc.string({ maxLength: 40 }),
        fc.nat(3),
        (secrets, surroundingText, position) => {
          const redactor = createRedactor();
          for (const value of secrets) redactor.hold(value);
          const text = `${surroundingText}${secrets[position] ?? ''}${surroundingText}`;
          expect(redactor.hide(text) === text || redactor.suspects(JSON.stringify({ text }))).toBe(true);
        },
      ),
      { seed, numRuns: 2_000 },
    );
  });

  test('is checked for secrets within 20 µs', () => {
    const redactor = createRedactor();
    for (let count = 0; count < 200; count += 1)
      redactor.hold(`secret-${count}-${Math.sin(count).toString(36).slice(2)}`);
    const line = JSON.stringify({
      level: 'info',
      requestId: 'req_01kadv3xpy8f6t0v5m7c2z9q1b',
      operationId: 'ai.generateText',
      status: 200,
      ms: 12.3,
      identity: 'user',
      identityId: 'usr_01kadv3xpy8f6t0v5m7c2z9q1b',
      msg: 'request',
    });
    const startedMs = performance.now();
    let suspectCount = 0;
    for (let count = 0; count < 100_000; count += 1) if (redactor.suspects(line)) suspectCount += 1;
    expect(suspectCount).toBe(0);
    // 0.3 µs a line on an idle machine; the limit allows for a busy one.
    expect(performance.now() - startedMs).toBeLessThan(2_000);
  });
});
