// Parses a `.env` text like the package dotenv, and imports all of its variables or none.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseDotenv } from '../../../src/gateway/env/dotenv.ts';
import { refusal, startEnvWorld, type EnvWorld } from './world.ts';

const read = (text: string) => {
  const { entries, errors } = parseDotenv(text);
  return errors.length > 0 ? errors : Object.fromEntries(entries.map(({ key, value }) => [key, value]));
};

describe('parseDotenv', () => {
  // The package dotenv reads each text as these values.
  test.each<[string, Record<string, string>]>([
    ['A=1', { A: '1' }],
    ['export A=1', { A: '1' }],
    ['# comment\n\n  A = x  \nB=', { A: 'x', B: '' }],
    ['A=x # comment', { A: 'x' }],
    ['A=x#y', { A: 'x' }],
    ['A="x # no comment" # comment', { A: 'x # no comment' }],
    ["A='$B \\n'", { A: '$B \\n' }],
    ['A="one\\ntwo"', { A: 'one\ntwo' }],
    ['A="one  \n  two\n"\nB=2', { A: 'one  \n  two\n', B: '2' }],
    ['A=`a "b" \'c\'`', { A: 'a "b" \'c\'' }],
    ['A="a\\"b"', { A: 'a\\"b' }],
    ['A={"json":true}', { A: '{"json":true}' }],
    ['A=b=c==', { A: 'b=c==' }],
    ['\uFEFFA=1\r\nB=2\r\n', { A: '1', B: '2' }],
    ['A: yaml', { A: 'yaml' }],
    ['A=1\nA=2', { A: '2' }],
    ["A=it's", { A: "it's" }],
    ['', {}],
  ])('reads %j like dotenv', (text, variables) => {
    expect(read(text)).toEqual(variables);
  });

  test.each<[string, number, string]>([
    ['A=1\nthis is no entry\nB=2', 2, 'KEY=value'],
    ['A=1\n\nB="no end\nC=3', 3, 'never closed'],
    ['A="x"y', 1, 'after its closing quote'],
    ['=x', 1, 'KEY=value'],
    ['export', 1, 'KEY=value'],
  ])('refuses %j and names line %i', (text, line, message) => {
    expect(read(text)).toEqual([{ line, message: expect.stringContaining(message) }]);
  });

  test('reads 256 KiB of any text in linear time', () => {
    for (const piece of ['"', "'\\", 'A="', ' ', 'export ', 'A=`\\`', '\n', 'A="\\"']) {
      const text = piece.repeat(Math.floor((256 * 1024) / piece.length));
      const startedMs = performance.now();
      parseDotenv(text);
      expect(performance.now() - startedMs, JSON.stringify(piece)).toBeLessThan(5_000);
    }
  });
});

describe('env.importVariables', () => {
  let world: EnvWorld;
  beforeAll(async () => {
    world = await startEnvWorld();
  });
  afterAll(() => world?.close());
  const keys = async () => (await world.admin.env.listVariables()).items.map(({ key }) => key);
  const importText = (content: string) => world.admin.env.importVariables({ content });

  test('writes the last value of each key', async () => {
    const content = [
      '# Providers',
      'export ACME_API_KEY="first CANARY key"',
      'TWO=2',
      'ACME_API_KEY=second-CANARY-key',
      'PEM="-----BEGIN\nline\n-----END"',
    ].join('\n');
    await expect(importText(content)).resolves.toEqual({ imported: 3, keys: ['ACME_API_KEY', 'TWO', 'PEM'] });
    const { items } = await world.admin.env.listVariables({ reveal: true });
    expect(Object.fromEntries(items.map(({ key, value }) => [key, value]))).toMatchObject({
      ACME_API_KEY: 'second-CANARY-key',
      TWO: '2',
      PEM: '-----BEGIN\nline\n-----END',
    });
  });

  test('writes nothing for a text of comments only', async () => {
    await expect(importText('# nothing but a comment')).resolves.toEqual({ imported: 0, keys: [] });
  });

  test.each([
    ['a malformed line', 'NEW=1\nnonsense CANARY', 'line 2'],
    ['a key in lower case', 'NEW=1\nlower=2', 'line 2'],
    ['a masked value', 'NEW=1\nMASKED=••••1234', 'line 2'],
    ['a value that is too long', `NEW=1\nLONG=${'x'.repeat(32 * 1024 + 1)}`, 'line 2'],
    ['a start-up key', 'NEW=1\nDATABASE_URL=postgres://x', 'line 2'],
  ])('writes no variable of a text with %s', async (_name, content, location) => {
    const answer = await refusal(importText(content));
    expect(answer).toMatchObject({ status: 400, param: 'content' });
    expect(answer.details[0]?.message).toContain(location);
    expect(answer.message).not.toContain('CANARY');
    expect(await keys()).not.toContain('NEW');
  });

  test('accepts 500 keys at most', async () => {
    const makeVariables = (count: number) =>
      Array.from({ length: count }, (_, index) => `MANY_${index}=${index}`).join('\n');
    expect(await refusal(importText(makeVariables(501)))).toMatchObject({ status: 400 });
    expect(await keys()).not.toContain('MANY_0');
    await expect(importText(makeVariables(500))).resolves.toMatchObject({ imported: 500 });
  });

  test('accepts 256 KiB of text at most', async () => {
    const paddedText = (bytes: number) => `# ${'x'.repeat(bytes - '# \nP=1\n'.length)}\nP=1\n`;
    await expect(importText(paddedText(256 * 1024))).resolves.toMatchObject({ imported: 1 });
    expect(await refusal(importText(paddedText(256 * 1024 + 1)))).toMatchObject({
      status: 413,
      code: 'request_too_large',
    });
  });
});
