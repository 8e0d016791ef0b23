// Errors that stop the build of the portal: a broken link, a sample that differs from its example
// or does not compile, an error code without a text.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findBrokenLinks } from '../../scripts/docs/links.ts';
import { writeProblemCodes } from '../../scripts/docs/problem-codes.ts';
import { checkTypes, fencesOf } from '../../scripts/docs/sample-types.ts';
import { checkSamples, readSample, updateSamples } from '../../scripts/docs/samples.ts';
import { runNode, type ToolRun } from '../../scripts/generate/tools.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-docs-build-'));
const examples = path.join(root, 'examples');

beforeAll(() => {
  for (const name of ['docs', 'examples', 'README.md'])
    cpSync(path.join(root, name), path.join(folder, name), { recursive: true });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Builds the portal after a change of one file of the copy, which is then undone. */
async function buildWith(name: string, change: (text: string) => string): Promise<ToolRun> {
  const file = path.join(folder, name);
  const text = readFileSync(file, 'utf8');
  writeFileSync(file, change(text));
  const parameters = ['--root', folder, '--output', path.join(folder, 'out')];
  const run = await runNode(path.join(root, 'scripts/docs.ts'), parameters, { cwd: root });
  writeFileSync(file, text);
  return run;
}

describe('the build of the portal', { timeout: 400_000 }, () => {
  test('names a broken link in a guide', async () => {
    const links = 'See [this](nowhere.md) and [that](agent.md#no-such-heading).';
    const { code, stderr } = await buildWith('docs/guides/errors.md', (text) => `${text}\n${links}\n`);
    expect(stderr).toMatch(/guides\/errors\.html: nowhere\.md leads to no page/);
    expect(stderr).toMatch(/guides\/errors\.html: agent\.html#no-such-heading names no heading/);
    expect(code).toBe(1);
  });

  test('fails for a sample that differs from its example', async () => {
    const { code, stderr } = await buildWith('examples/first-five-minutes.sh', (text) =>
      text.replace('/health', '/wealth'),
    );
    expect(stderr).toMatch(
      /docs\/guides\/first-five-minutes\.md:\d+: the sample differs from first-five-minutes\.sh#health/,
    );
    expect(code).toBe(1);
  });
});

describe('a sample of a guide', () => {
  const render = (body: string) =>
    `# A guide\n<!-- example: first-five-minutes.sh#health -->\n\`\`\`sh\n${body}\n\`\`\`\n`;

  test('equals a region of an example', () => {
    const region = readSample(path.join(examples, 'first-five-minutes.sh'), 'health');
    expect(checkSamples(render(region), examples)).toEqual([]);
    expect(checkSamples(render('curl nowhere'), examples)).toMatchObject([{ line: 2 }]);
  });

  test('is rewritten on request', () => {
    const region = readSample(path.join(examples, 'first-five-minutes.sh'), 'health');
    expect(updateSamples(render('curl nowhere'), examples)).toBe(render(region));
  });

  test.each([
    ['without its example', '<!-- example: absent.ts -->\n```ts\nx\n```', /no example absent\.ts/],
    [
      'without its region',
      '<!-- example: first-five-minutes.ts#absent -->\n```ts\nx\n```',
      /no region "absent"/,
    ],
    [
      'without a fenced block',
      '<!-- example: first-five-minutes.ts -->\nwords',
      /on the line before a fenced block/,
    ],
  ])('is refused %s', (_title, markdown, message) => {
    expect(checkSamples(markdown, examples)).toEqual([{ line: 1, message: expect.stringMatching(message) }]);
  });

  test('is type-checked, with errors at the line of the guide', { timeout: 400_000 }, () => {
    const fences = fencesOf(
      [
        '# A guide\n',
        '```ts\nawait client.ai.listModels();\n```\n',
        '```ts\nawait client.ai.listMoodels();\n```\n',
      ].join('\n'),
      'docs/guides/a.md',
    );
    const problems = checkTypes(root, { fences, examples: [] });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(/^docs\/guides\/a\.md:8: Property 'listMoodels' does not exist/);
  });
});

test('findBrokenLinks reports a missing page, heading and script', () => {
  const pages = new Map([
    ['a.html', '<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="https://a.test/">x</a>'],
    ['b.html', '<h2 id="there">x</h2><script src="c.js"></script>'],
  ]);
  expect(findBrokenLinks(pages, new Set(['d.js']))).toEqual([
    'a.html: b.html#gone names no heading of b.html',
    'b.html: c.js is no file of the portal',
  ]);
});

test('writeProblemCodes names an error code without a text', () => {
  const schema = {
    enum: ['known', 'silent'],
    'x-codes': { known: { status: [400], means: 'It is known.', do: 'Nothing.' } },
  };
  const document = { components: { schemas: { ProblemCode: schema } } };
  expect(() => writeProblemCodes([document])).toThrow(/no text under x-codes.*: silent$/);
});

test('writeProblemCodes explains each error code', () => {
  const schema = {
    enum: ['known', 'shared'],
    'x-codes': {
      known: { status: [400], means: 'It is known.', do: 'Nothing.' },
      shared: { status: [400, 404, 409], means: 'It is shared.', do: 'Nothing.' },
    },
  };
  const page = writeProblemCodes([{ components: { schemas: { ProblemCode: schema } } }]);
  expect(page).toContain('### known\nIt is known. **What to do:** Nothing.\n');
  expect(page).toContain(
    '### shared\nIt is shared. Its status is 400, 404, or 409. **What to do:** Nothing.\n',
  );
});
