// Renders the text pages from Markdown: guides, error codes, examples and documents. A sample that differs
// from its example, or does not compile, fails the build.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type RenderedMarkdown, renderMarkdown } from './markdown.ts';
import { type PictureFile, pictureWriter } from './pictures.ts';
import { writeProblemCodes } from './problem-codes.ts';
import type { ReferencePage } from './reference-page.ts';
import { checkTypes, fencesOf } from './sample-types.ts';
import { checkSamples, readSample, updateSamples } from './samples.ts';
import { writeIfChanged } from '../generate/files.ts';

const root = path.join(import.meta.dirname, '../..');

/** A page before the layout is added. */
export interface RenderedPage extends RenderedMarkdown {
  page: string;
  source: string;
  markdown: string;
}

/** Documents outside of docs/guides that the portal also shows. */
export const internals = ['docs/architecture.md', 'docs/glossary.md', 'docs/benchmarks.md'];
export const internalsPage = (source: string): string => `${path.basename(source, '.md')}.html`;

export function hasMarkdown({ page }: RenderedPage): boolean {
  return page.startsWith('guides/') || page === 'start.html';
}

export function renderPages(
  folder: string,
  references: readonly ReferencePage[],
  pictures: ReadonlyMap<string, PictureFile>,
): { pages: RenderedPage[]; checkSampleTypes: () => void } {
  const sources = readSources(folder);
  const { guides, readme, programs, examples } = sources;
  const documentation = new Map([...guides, ['README.md', readme]]);
  refuse(
    [...documentation].flatMap(([name, markdown]) =>
      checkSamples(markdown, path.join(folder, 'examples')).map(
        ({ line, message }) => `${name}:${line}: ${message}`,
      ),
    ),
  );
  const pageOf = pageFinder(sources);
  const readDiagram = (target: string): string => readFileSync(path.join(folder, target), 'utf8');
  const render = (markdown: string, source: string, page: string): RenderedPage => ({
    page,
    source,
    markdown,
    ...renderMarkdown(markdown, {
      source,
      page,
      pageOf,
      readDiagram,
      writePicture: pictureWriter(pictures, page),
    }),
  });
  // The navigation replaces this section.
  const [introduction = ''] = readme.split(/^## Where to go next$/m);
  const problemCodes = writeProblemCodes(references.map(({ document }) => document));
  const pages = [
    ...[...guides].map(([source, markdown]) =>
      render(markdown, source, `guides/${path.basename(source, '.md')}.html`),
    ),
    render(introduction.replace(/^# .*$/m, '# What it is'), 'README.md', 'start.html'),
    render(problemCodes, 'docs/guides/error-codes.md', 'guides/error-codes.html'),
    ...internals.map((name) =>
      render(readFileSync(path.join(folder, name), 'utf8'), name, internalsPage(name)),
    ),
    render(writeExampleList(examples), 'examples/README.md', 'examples/index.html'),
    ...examples.map((name) =>
      render(writeExample(folder, name), `examples/${name}`, `examples/${name}.html`),
    ),
  ];
  return { pages, checkSampleTypes: () => checkAllTypes(folder, documentation, programs) };
}

interface Sources {
  /** The texts of the guides by their paths. */
  guides: ReadonlyMap<string, string>;
  readme: string;
  /** All programs in `examples`. */
  programs: readonly string[];
  /** The programs that get a page. Samples of operations are on the pages of their operations instead. */
  examples: readonly string[];
}

function readSources(folder: string): Sources {
  const guides = readdirSync(path.join(folder, 'docs/guides')).filter((name) => name.endsWith('.md'));
  const programs = readdirSync(path.join(folder, 'examples'), { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(?:tsx?|py|sh|json)$/.test(name) && !name.includes('node_modules'),
  );
  return {
    guides: new Map(
      guides.map((name) => [
        `docs/guides/${name}`,
        readFileSync(path.join(folder, 'docs/guides', name), 'utf8'),
      ]),
    ),
    readme: readFileSync(path.join(folder, 'README.md'), 'utf8'),
    programs,
    examples: programs.filter((name) => !name.startsWith(`operations${path.sep}`)),
  };
}

/** The page of the portal that shows a file of the repository; undefined for files without one. */
function pageFinder({ guides, examples }: Sources): (target: string) => string | undefined {
  return (target) => {
    if (target === 'README.md') return 'start.html';
    if (internals.includes(target)) return internalsPage(target);
    if (/^(?:\.\/)?examples\/?$/.test(target)) return 'examples/index.html';
    const [, guide] = /^docs\/guides\/(.+)\.md$/.exec(target) ?? [];
    if (guide !== undefined)
      return guide === 'error-codes' || guides.has(target) ? `guides/${guide}.html` : undefined;
    const [, example] = /^examples\/(.+)$/.exec(target) ?? [];
    return example !== undefined && examples.includes(example) ? `examples/${example}.html` : undefined;
  };
}

function writeExampleList(examples: readonly string[]): string {
  const list = examples.map((name) => `- [${name}](${name})`).join('\n');
  return `# Examples\nWhole programs, typechecked with everything else.\n\n${list}\n`;
}

function writeExample(folder: string, name: string): string {
  const fence = '```';
  const sample = readSample(path.join(folder, 'examples', name));
  return `# ${name}\n\n${fence}${path.extname(name).slice(1)}\n${sample}\n${fence}\n`;
}

function checkAllTypes(
  folder: string,
  texts: ReadonlyMap<string, string>,
  examples: readonly string[],
): void {
  const clients = ['gateway', 'agent', 'react']
    .map((client) => `clients/${client}/README.md`)
    .map((name) => [name, readFileSync(path.join(root, name), 'utf8')] as const);
  const fences = [...texts, ...clients].flatMap(([name, markdown]) => fencesOf(markdown, name));
  const programs = examples
    .filter((name) => /\.tsx?$/.test(name))
    .map((name) => path.join(folder, 'examples', name));
  refuse(checkTypes(root, { fences, examples: programs }));
}

function refuse(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(`samples:\n  ${problems.join('\n  ')}`);
}

export function updateGuides(folder: string): void {
  const files = [
    ...readdirSync(path.join(folder, 'docs/guides')).map((name) => path.join(folder, 'docs/guides', name)),
    path.join(folder, 'README.md'),
  ];
  for (const file of files)
    if (file.endsWith('.md'))
      writeIfChanged(file, updateSamples(readFileSync(file, 'utf8'), path.join(folder, 'examples')));
}
