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
import { runNode } from '../../scripts/generate/tools.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-docs-build-'));
const examples = path.join(root, 'examples');

beforeAll(() => {
  for (const name of ['docs', 'examples', 'README.md'])
    cpSync(path.join(root, name), path.join(folder, name), { recursive: true });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the build of the portal', () => {
  test('names a broken link in a guide', { timeout: 400_000 }, async () => {
    const guide = path.join(folder, 'docs/guides/errors.md');
    const text = readFileSync(guide, 'utf8');
    writeFileSync(guide, `${text}\nSee [this](nowhere.md) and [that](agent.md#no-such-heading).\n`);
    const { code, stderr } = await runNode(
      path.join(root, 'scripts/docs.ts'),
      ['--root', folder, '--output', path.join(folder, 'out')],
      { cwd: root },
    );
    writeFileSync(guide, text);
    expect(stderr).toMatch(/guides\/errors\.html: nowhere\.md leads to no page/);
    expect(stderr).toMatch(/guides\/errors\.html: agent\.html#no-such-heading names no heading/);
    expect(code).toBe(1);
  });

  test('fails for a sample that its example does not have', { timeout: 400_000 }, async () => {
    const example = path.join(folder, 'examples/first-five-minutes.sh');
    const text = readFileSync(example, 'utf8');
    writeFileSync(example, text.replace('/health', '/wealth'));
    const { code, stderr } = await runNode(
      path.join(root, 'scripts/docs.ts'),
      ['--root', folder, '--output', path.join(folder, 'out')],
      { cwd: root },
    );
    writeFileSync(example, text);
    expect(stderr).toMatch(
      /docs\/guides\/first-five-minutes\.md:\d+: the sample is not what first-five-minutes\.sh#health says/,
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

  test('is refused without its example, its region or a fenced block', () => {
    expect(checkSamples('<!-- example: absent.ts -->\n```ts\nx\n```', examples)[0]?.message).toMatch(
      /no example absent\.ts/,
    );
    expect(
      checkSamples('<!-- example: first-five-minutes.ts#absent -->\n```ts\nx\n```', examples)[0]?.message,
    ).toMatch(/no region "absent"/);
    expect(checkSamples('<!-- example: first-five-minutes.ts -->\nwords', examples)[0]?.message).toMatch(
      /right before a fenced block/,
    );
  });

  test('is type-checked, with errors at the line of the guide', { timeout: 400_000 }, () => {
    const fences = fencesOf(
      '# A guide\n\n```ts\nawait client.ai.listModels();\n```\n\n```ts\nawait client.ai.listMoodels();\n```\n',
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
  expect(
    writeProblemCodes([{ components: { schemas: { ProblemCode: { ...schema, enum: ['known'] } } } }]),
  ).toMatch(/### known\nIt is known\. \*\*What to do:\*\* Nothing\./);
});
