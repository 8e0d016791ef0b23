// Compares the contract with its released version: a change that breaks a client needs a higher major
// version.
//
//   node scripts/released.ts             compares src/contract with openapi/released
//   node scripts/released.ts --release   writes the contract there, when it may be released; with --replace
//                                        also over a version that was written but never published
//   --contract DIR, --released DIR       other folders than these

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { writeIfChanged } from './generate/files.ts';
import { withOpenEnums } from './generate/open-enums.ts';
import { surfaces } from './generate/surfaces.ts';
import { runRedocly, type ToolRun } from './generate/tools.ts';

const root = path.join(import.meta.dirname, '..');
const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    release: { type: 'boolean', default: false },
    replace: { type: 'boolean', default: false },
    contract: { type: 'string', default: path.join(root, 'src/contract') },
    released: { type: 'string', default: path.join(root, 'openapi/released') },
  },
});

/** The result of comparing one document with its release. */
interface Verdict {
  name: string;
  isAllowed: boolean;
  summary: string;
  report: string;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`released: ${(error as Error).message}`);
  process.exitCode = 1;
}

async function main(): Promise<number> {
  const names = surfaces.map(({ name }) => name);
  const missingNames = names.filter((name) => !existsSync(fileOf(name)));
  if (missingNames.length > 0 && !options.release)
    throw new Error(
      `there is no release of ${missingNames.join(', ')}; "npm run release:contract" writes the first one`,
    );
  const verdicts = await Promise.all(names.filter((name) => !missingNames.includes(name)).map(compare));
  for (const { name, isAllowed, summary, report } of verdicts) {
    if (!isAllowed) console.error(report);
    console.log(`released: ${name}: ${summary}`);
  }
  const isRefused = verdicts.some(({ isAllowed }) => !isAllowed);
  if (isRefused && !(options.release && options.replace)) {
    console.error('released: a breaking change needs a higher major version in the info of the documents');
    return 1;
  }
  if (options.release) {
    for (const name of names) release(name);
    console.log(`released: wrote ${names.join(', ')} (version ${versionIn(bundleOf('gateway'))})`);
  }
  return 0;
}

async function compare(name: string): Promise<Verdict> {
  const [releasedDocument, currentDocument] = [readDocument(fileOf(name)), readDocument(bundleOf(name))];
  const { code, stdout, stderr } = await diff(name, withOpenEnums(releasedDocument, currentDocument));
  const [, major, minor, patch] = /(\d+) major, (\d+) minor, (\d+) patch/.exec(`${stdout}${stderr}`) ?? [];
  // The exit code alone is not enough: for an unreadable document there is no line with the counts.
  if (major === undefined) throw new Error(`redocly diff of ${name}:\n${stdout}\n${stderr}`);
  const isBreaking = code !== 0 || major !== '0';
  return {
    name,
    isAllowed: !isBreaking || majorOf(currentDocument.info.version) > majorOf(releasedDocument.info.version),
    summary:
      `${releasedDocument.info.version} -> ${currentDocument.info.version}, ` +
      `${major} breaking, ${minor} added, ${patch} other`,
    report: stdout,
  };
}

/** Compares the released document with the contract. The folder of the document is removed in any case. */
async function diff(name: string, releasedDocument: unknown): Promise<ToolRun> {
  const folder = mkdtempSync(path.join(tmpdir(), 'townhall-released-'));
  try {
    const releasedFile = path.join(folder, `${name}.json`);
    writeFileSync(releasedFile, JSON.stringify(releasedDocument));
    return await runRedocly(root, [
      'diff',
      releasedFile,
      bundleOf(name),
      '--config',
      path.join(root, 'openapi/released/redocly.yaml'),
      '--fail-on',
      'major',
    ]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function release(name: string): void {
  mkdirSync(path.dirname(fileOf(name)), { recursive: true });
  // A bundle on one line would make the diff of the next release unreadable.
  writeIfChanged(
    fileOf(name),
    `${JSON.stringify(JSON.parse(readFileSync(bundleOf(name), 'utf8')), null, 1)}\n`,
  );
}

function fileOf(name: string): string {
  return path.join(path.resolve(options.released), `${name}.json`);
}

function bundleOf(name: string): string {
  const file = path.join(path.resolve(options.contract), name, 'bundle.json');
  if (!existsSync(file)) throw new Error(`there is no bundle of ${name}; run "npm run generate" first`);
  return file;
}

function readDocument(file: string): { info: { version: string } } {
  return JSON.parse(readFileSync(file, 'utf8')) as { info: { version: string } };
}

function versionIn(file: string): string {
  return readDocument(file).info.version;
}

function majorOf(version: string): number {
  return Number(version.split('.')[0]);
}
