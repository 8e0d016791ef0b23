// Log lines: their form, their level, and what they never show.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { createLog, type LogLevel } from '../../src/kernel/log.ts';
import { createRedactor, createToken } from '../../src/kernel/secrets/secret.ts';

function createRecordedLog(level: LogLevel = 'debug') {
  const text: string[] = [];
  const redactor = createRedactor();
  const log = createLog({ level, redactor, write: (line) => text.push(line) });
  return {
    log,
    redactor,
    text,
    lines: () => text.map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

const quotedUrl = (file: string) => JSON.stringify(new URL(`../../src/kernel/${file}`, import.meta.url).href);
const openLog = `
  import { createLog } from ${quotedUrl('log.ts')};
  import { createRedactor } from ${quotedUrl('secrets/secret.ts')};
  const log = createLog({ level: 'info', redactor: createRedactor() });`;

/** Runs the statements with a `log` on standard output. */
function spawnLog(statements: string): ChildProcess {
  return spawn(process.execPath, ['--input-type=module', '-e', openLog + statements], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

describe('log', () => {
  test('a line is one JSON object with level, time and message', () => {
    const { log, text, lines } = createRecordedLog();
    log.info({ port: 1 }, 'listening');
    expect(lines()).toEqual([
      { level: 'info', time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/), port: 1, msg: 'listening' },
    ]);
    expect(text[0]).toMatch(/^[^\n]*\n$/);
  });

  test('levels below the chosen one are silent', () => {
    const { log, lines } = createRecordedLog('warn');
    log.debug({}, 'a');
    log.info({}, 'b');
    log.warn({}, 'c');
    log.error({}, 'd');
    expect(lines().map((line) => line.msg)).toEqual(['c', 'd']);
  });

  test('members with a secret name are hidden at any depth', () => {
    const { log, text } = createRecordedLog();
    const secret = 'hunter2-hunter2';
    const child = log.child({ apiKey: secret });
    child.info(
      {
        headers: { Authorization: secret, 'X-User-Token': secret, cookie: [secret] },
        deep: { a: { b: { client_secret: secret } } },
      },
      'x',
    );
    child.error(
      { err: Object.assign(new Error('failed'), { password: secret, cause: { token: secret } }) },
      'y',
    );
    expect(text.join('')).not.toContain(secret);
    expect(text.join('')).toContain('failed');
  });

  test('a child logger hides secrets registered after its creation', () => {
    const { log, redactor, text } = createRecordedLog();
    const child = log.child({ note: 'uses CANARY-1234' });
    redactor.hold('CANARY-1234');
    const error = new Error('upstream said CANARY-1234', { cause: new Error('CANARY-1234 again') });
    child.error(
      {
        err: error,
        list: ['CANARY-1234'],
        'CANARY-1234': 1,
        map: { 'CANARY-1234': 1 },
        bytes: Buffer.from('CANARY-1234'),
      },
      'message CANARY-1234',
    );
    child.info({ text: `Bearer ${createToken('usr')}` }, createToken('agt'));
    expect(text.join('')).not.toContain('CANARY-1234');
    expect(text.join('')).not.toMatch(/th_(usr|agt)_/);
  });

  test('line breaks and other control characters stay inside their record', () => {
    const { log, text, lines } = createRecordedLog();
    log.info({ model: 'a\r\n{"level":"error","msg":"forged"}\0\u001b[31m' }, 'one\nline');
    expect(text).toHaveLength(1);
    expect(text[0]?.trimEnd()).not.toMatch(/[\r\n\0\u001b]/);
    expect(lines()[0]).toMatchObject({ level: 'info', msg: 'one\nline' });
  });

  test('a long text is cut without leaking part of a secret', () => {
    const { log, redactor, text, lines } = createRecordedLog();
    const secret = `s3cret-${'0123456789'.repeat(20)}`;
    redactor.hold(secret);
    log.info({ text: 'a'.repeat(8_000_000), below: { list: ['b'.repeat(16_385)] } }, 'long');
    expect(lines()[0]).toMatchObject({
      text: expect.stringMatching(/^a{16384}… \(8000000 characters\)$/),
      below: { list: [expect.stringMatching(/^b{16384}… \(16385 characters\)$/)] },
    });
    // The secret crosses the end of the shown part (16,384) or of the searched part (65,536).
    for (const chunkEnd of [16_384, 65_536])
      for (const offset of [1, 100, 206])
        log.error({ err: new Error('c'.repeat(chunkEnd - offset) + secret + 'c'.repeat(70_000)) }, 'secret');
    for (const repetitions of [1_000, 1])
      log.info({ text: `${secret} `.repeat(repetitions) + 'd'.repeat(70_000) }, 'many');
    expect(text.join('')).not.toContain('s3cret');
    expect(text.at(-1)).toContain('[redacted]');
  });

  test('an error keeps its type and its cause', () => {
    const { log, lines } = createRecordedLog();
    log.error({ err: new TypeError('no', { cause: new RangeError('why') }) }, 'x');
    expect(lines()[0]).toMatchObject({
      err: {
        type: 'TypeError',
        message: 'no',
        stack: expect.stringContaining('log.test'),
        cause: { type: 'RangeError', message: 'why' },
      },
    });
  });

  test('an unserializable value is summarized and never throws', () => {
    const { log, lines } = createRecordedLog();
    const circle: Record<string, unknown> = { big: 10n, at: new Date(0), call: () => 1, level: 'x' };
    circle.self = circle;
    log.info({ circle, level: 'mine', ['__proto__']: 'p' }, 'x');
    expect(lines()[0]).toMatchObject({
      level: 'info',
      level_: 'mine',
      circle: { big: '10', at: '1970-01-01T00:00:00.000Z', call: '[function]', self: '[circular]' },
    });
  });

  test('lines reach standard output soon after they are logged', async () => {
    const child = spawnLog(`
      for (let n = 0; n < 300; n += 1) {
        log.info({ n, text: 'x'.repeat(n) }, 'line');
        if (n % 7 === 0) await new Promise((resolve) => setTimeout(resolve, n % 5));
      }
      setTimeout(() => {}, 60_000);`);
    try {
      const numbers: number[] = [];
      for await (const line of createInterface({ input: child.stdout as Readable })) {
        numbers.push((JSON.parse(line) as { n: number }).n);
        if (numbers.length === 300) break;
      }
      expect(numbers).toEqual(Array.from({ length: 300 }, (_, n) => n));
      expect(child.exitCode).toBeNull();
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('lines on standard output are whole when the process exits', () => {
    const script = `${openLog}
      for (let n = 0; n < 2000; n += 1) log.info({ n }, 'line');
      process.exit(0);`;
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    expect(
      output
        .trimEnd()
        .split('\n')
        .map((line) => (JSON.parse(line) as { n: number }).n),
    ).toEqual(Array.from({ length: 2000 }, (_, n) => n));
  });
});
