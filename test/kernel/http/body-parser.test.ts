// Parsing on the main thread and in the worker thread gives the same values, bytes and errors.
import { describe, expect, test } from 'vitest';
import { parseBody, parseForm } from '../../../src/kernel/http/body/parser.ts';

describe('parseBody', () => {
  // 8.4 MB of JSON, and 400 kB for the first 200,000 characters. Bodies above 4 MiB are parsed in the worker
  // thread, and those above 256 KiB one after the other.
  const filler = 'é"\\'.repeat(1_400_000);

  test.each([
    ['small', ''],
    ['medium', filler.slice(0, 200_000)],
    ['large', filler],
  ])('returns the value and the bytes of a %s document', async (_name, text) => {
    const document = JSON.stringify({ text, list: [1, { a: null }] });
    const { raw, value } = await parseBody(Buffer.from(document));
    expect(value).toEqual({ text, list: [1, { a: null }] });
    expect(raw.equals(Buffer.from(document))).toBe(true);
  });

  test('refuses an invalid large document', async () => {
    const text = JSON.stringify({ text: filler, a: [1] });
    await expect(parseBody(Buffer.from(text.replace('[1]', '[1,]')))).rejects.toMatchObject({
      status: 400,
      code: 'invalid_json',
    });
    await expect(parseBody(Buffer.from(text.replace('[1]', '[1e999]')))).rejects.toMatchObject({
      status: 400,
      param: 'a[0]',
      details: [{ path: 'a[0]' }],
    });
    await expect(
      parseBody(Buffer.from(text.replace('[1]', `[${Array(100_000).fill('{}').join(',')}]`))),
    ).rejects.toMatchObject({ status: 413, code: 'request_too_large' });
  });

  test('returns each of several large documents to its own caller', async () => {
    const documents = Array.from({ length: 4 }, (_, index) => JSON.stringify({ index, text: filler }));
    const values = await Promise.all(documents.map(async (document) => parseBody(Buffer.from(document))));
    expect(values.map(({ value }) => (value as { index: number }).index)).toEqual([0, 1, 2, 3]);
  });
});

describe('parseForm', () => {
  const part = (name: string, content: string) =>
    [
      '--form7',
      `Content-Disposition: form-data; name="${name}"${name.startsWith('file') ? '; filename="a.wav"' : ''}`,
      ...(name.startsWith('file') ? ['Content-Type: audio/wav'] : []),
      '',
      `${content}\r\n`,
    ].join('\r\n');
  const type = 'multipart/form-data; boundary=form7';

  test.each([
    ['small', 10],
    ['large', 5_000_000],
  ])('returns the members and the bytes of a %s form', async (_name, length) => {
    const text = `${part('model', 'acme/ok')}${part('file', 'x'.repeat(length))}--form7--\r\n`;
    const { raw, value } = await parseForm(Buffer.from(text), type);
    const { model, file } = value as {
      model: string;
      file: { fileName: string; mediaType: string; content: Uint8Array };
    };
    expect([model, file.fileName, file.mediaType]).toEqual(['acme/ok', 'a.wav', 'audio/wav']);
    expect(Buffer.from(file.content).equals(Buffer.alloc(length, 'x'))).toBe(true);
    expect(raw.equals(Buffer.from(text))).toBe(true);
  });

  test('returns the lists of a large form', async () => {
    const files = ['x', 'y'].map((letter) => letter.repeat(3_000_000));
    const parts = [...files.map((content) => part('files[]', content)), part('words[]', 'a')];
    const { value } = await parseForm(Buffer.from(`${parts.join('')}--form7--\r\n`), type);
    const lists = value as { 'files[]': { content: Uint8Array }[]; 'words[]': string[] };
    const texts = lists['files[]'].map(({ content }) => Buffer.from(content).toString());
    expect(texts.map((text, index) => text === files[index])).toEqual([true, true]);
    expect(lists['words[]']).toEqual(['a']);
  });

  test('refuses an invalid large form', async () => {
    const parts = [part('model', 'a'), part('model', 'b'), part('file', 'x'.repeat(5_000_000))];
    const text = `${parts.join('')}--form7--\r\n`;
    await expect(parseForm(Buffer.from(text), type)).rejects.toMatchObject({
      status: 400,
      code: 'duplicate_member',
      param: 'model',
    });
    await expect(parseForm(Buffer.from(text.slice(0, -10)), type)).rejects.toMatchObject({
      status: 400,
      code: 'invalid_request',
    });
  });
});

describe('the number of parts of a form', () => {
  const formOf = (parts: number) =>
    Array.from(
      { length: parts },
      (_, index) => `--b\r\ncontent-disposition: form-data; name="m${index}"\r\n\r\nx\r\n`,
    ).join('') + '--b--\r\n';
  const parse = (parts: number) => parseForm(Buffer.from(formOf(parts)), 'multipart/form-data; boundary=b');

  test('may be 64', async () => {
    expect(Object.keys((await parse(64)).value as object)).toHaveLength(64);
  });

  test('is refused above 64', async () => {
    await expect(parse(65)).rejects.toThrow('A form may have 64 parts at most.');
  });

  test.each([
    ['in a quoted parameter', 'multipart/form-data; x=";boundary=a"; boundary=b'],
    ['in a first value', 'multipart/form-data; boundary=a, multipart/form-data; boundary=b'],
    ['with a backslash', 'multipart/form-data; boundary="\\b"'],
  ])('is not hidden by another boundary %s', async (_place, type) => {
    await expect(parseForm(Buffer.from(formOf(65)), type)).rejects.toMatchObject({ status: 400 });
  });
});
