// PDFs that hide their pages: a plain search of their bytes finds one page.
import { deflateSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { sizeOf } from '../../../src/gateway/ai/metering/measure.ts';
import { countPdfPages, pdfBudget } from '../../../src/gateway/ai/metering/pdf-pages.ts';

const pageTokens = 16_384;
const visiblePage = '3 0 obj<</Type /Page /Parent 2 0 R>>endobj\n';

function pdf(...parts: (string | Buffer)[]): Buffer {
  return Buffer.concat(['%PDF-1.7\n', visiblePage, ...parts].map((part) => Buffer.from(part as string)));
}

/** An object stream with the text; `dictionary` replaces its usual members. */
function objectStream(text: string, dictionary = '/Type/ObjStm/N 9/First 100/Filter/FlateDecode'): Buffer {
  const content = deflateSync(text);
  return Buffer.concat([
    Buffer.from(`9 0 obj<<${dictionary}/Length ${content.length}>>stream\n`),
    content,
    Buffer.from('\nendstream endobj\n'),
  ]);
}

const pages = (count: number) => '<</Type/Page/Parent 2 0 R>>'.repeat(count);
const references = (count: number) => '3 0 R '.repeat(count);

/** The number of pages in the upper bound of the file's tokens. */
function countBoundPages(file: Buffer): number {
  const part = { type: 'input_file', file_data: `data:application/pdf;base64,${file.toString('base64')}` };
  const { mediaTokens } = sizeOf({ input: [{ role: 'user', content: [part] }] }, 'responses');
  return Math.floor(mediaTokens / pageTokens);
}

describe('the pages of a PDF', () => {
  test.each([
    ['in a compressed object stream', pdf(objectStream(pages(50)))],
    ['in an object stream without a type', pdf(objectStream(pages(50), '/N 9/First 100/Filter/FlateDecode'))],
    ['by escaped names', pdf('<</#54ype/P#61ge>>'.repeat(50))],
    ['with a comment in between', pdf('<</Type %\n/Page>>'.repeat(50))],
    ['by the declared count', pdf('<</Type/Pages/Count 50>>')],
    ['by references to objects without a type', pdf(`<</Type/Pages/Kids[${references(50)}]>>`)],
    ['by references to one page', pdf(`<</Kids [${references(50)}]>>`)],
  ])('are counted %s', (_how, file) => {
    expect(countBoundPages(file)).toBeGreaterThanOrEqual(50);
    expect(countBoundPages(file)).toBeLessThanOrEqual(51);
  });

  test.each([
    ['a filter that is not read', pdf(objectStream(pages(50), '/Type/ObjStm/First 9/Filter/LZWDecode'))],
    [
      'a stream that is damaged',
      pdf('9 0 obj<</Type/ObjStm/First 9/Filter/FlateDecode>>stream\nxx endstream'),
    ],
    ['an indirect type', pdf('<</Type 5 0 R>>')],
    ['an indirect list', pdf('<</Type/Pages/Kids 5 0 R>>')],
    ['an indirect count', pdf('<</Type/Pages/Count 5 0 R>>')],
    ['a list with a bracket in a comment', pdf(`<</Kids [%]\n${references(50)}]>>`)],
    ['the end of an object in a comment', pdf('9 0 obj<</First 9%endobj\n/Filter/FlateDecode>>stream\n')],
    ['a long gap in a member', pdf(`<</Type${' '.repeat(300)}/Page>>`)],
    ['no page at all', Buffer.from(`%PDF-1.7 ${'x'.repeat(1_000)}`)],
  ])('count by the bytes for %s', (_what, file) => {
    // The smallest possible page has 16 bytes.
    expect(countBoundPages(file)).toBe(Math.ceil(file.length / 16));
  });

  test('are exact for an ordinary file', () => {
    const file = pdf(
      visiblePage,
      '2 0 obj<</Type/Pages/Count 2/Kids[3 0 R 4 0 R]>>endobj\n',
      objectStream('<</Type/Font>>'),
      '5 0 obj<</Type/Outlines/First 6 0 R/Last 6 0 R/Count 1>>endobj\n',
    );
    expect(countPdfPages(file, pdfBudget())).toEqual({ most: 2, usual: 2 });
  });

  test('count by the bytes when streams inflate to more than is read', () => {
    const file = pdf(objectStream(' '.repeat(5 * 1024 * 1024)));
    expect(countBoundPages(file)).toBe(Math.ceil(file.length / 16));
  });

  test('share one budget within a request', () => {
    // Each file inflates a little more than half a MiB, and the budget is 2 MiB.
    const budget = pdfBudget();
    const file = pdf(objectStream(`${pages(1)}${' '.repeat(512 * 1024)}`));
    const counts = [1, 2, 3, 4, 5].map(() => countPdfPages(file, budget).most);
    expect(counts.slice(0, 3)).toEqual([2, 2, 2]);
    expect(counts.at(-1)).toBeGreaterThan(2);
  });
});

test('a compressed document counts like content at a URL', () => {
  const data = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), Buffer.alloc(1_000)]).toString('base64');
  const part = { type: 'input_file', file_data: `data:application/vnd.ms-excel;base64,${data}` };
  const { mediaTokens } = sizeOf({ input: [{ role: 'user', content: [part] }] }, 'responses');
  expect(mediaTokens).toBe(262_144);
});
