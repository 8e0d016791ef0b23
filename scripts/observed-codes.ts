// Lists the error codes of the contract that no test has observed. A code of a single operation
// must be observed at that operation; a code of a family comes from shared code, so one of the
// family's operations is enough, or a request that was refused before its operation was known, such
// as one with a path that cannot be decoded. A further path of an operation counts as the
// operation. Reads the files that `npm test` and `npm run test:long` have written to
// build/observed-codes.
//
//   node scripts/observed-codes.ts [--clear]
//
// --clear removes the results of earlier runs.

import { globSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { parseCommandLine } from './command-line.ts';
import { unobservedCodes } from './lint/unobserved-codes.ts';
import { isAlias } from './generate/aliases.ts';
import { type Document, operationsOf } from './generate/document.ts';
import { sharedCodesOf } from './generate/error-codes.ts';
import { surfaces } from './generate/surfaces.ts';

const root = path.join(import.meta.dirname, '..');
const folder = path.join(root, 'build/observed-codes');

/** A code that has to be observed, and the operations at which it may be. */
export interface ListedCode {
  /**
   * The name in the list of exceptions: `ai.getModel model_not_found` or `gateway, every operation:
   * not_ready`.
   */
  name: string;
  code: string;
  operationIds: string[];
  /** Whether the code is of shared code, so that a request without an operation may have it. */
  isShared: boolean;
}

/** Both variants of the agent have the same codes, so a name is listed once. */
export function listedCodes(documents: readonly { name: string; document: Document }[]): ListedCode[] {
  const byName = new Map<string, ListedCode>();
  for (const { name: surface, document } of documents) {
    for (const { id, path: template, operation } of operationsOf(document)) {
      // An alias has the handler of its original.
      if (isAlias(operation)) continue;
      const sharedCodes = sharedCodesOf(operation, { name: surface }, template);
      for (const code of operation['x-error-codes'] ?? []) {
        const family = sharedCodes.get(code);
        const server = surface === 'gateway' ? 'gateway' : 'agent';
        const name = family === undefined ? `${id} ${code}` : `${server}, ${family}: ${code}`;
        const listedCode = byName.get(name) ?? {
          name,
          code,
          operationIds: [],
          isShared: family !== undefined,
        };
        listedCode.operationIds.push(id);
        byName.set(name, listedCode);
      }
    }
  }
  return [...byName.values()];
}

/**
 * The findings as text: unobserved codes, and exceptions that are not needed. A pair is an operationId
 * and a code, with a space between them; the operationId is empty for a request without an operation.
 */
export function findUnobserved(
  codes: readonly ListedCode[],
  observedPairs: ReadonlySet<string>,
  exceptions: Readonly<Record<string, string>>,
): string[] {
  const isObserved = ({ code, operationIds, isShared }: ListedCode) =>
    [...operationIds, ...(isShared ? [''] : [])].some((operationId) =>
      observedPairs.has(`${operationId} ${code}`),
    );
  const unobservedNames = codes.filter((entry) => !isObserved(entry)).map(({ name }) => name);
  // A code that depends on a race of two requests may be observed in one run and not in the next.
  const racedNames = new Set(
    codes.map(({ name }) => name).filter((name) => exceptions[name]?.startsWith('Raced') === true),
  );
  return [
    ...unobservedNames.filter((name) => exceptions[name] === undefined).map((name) => `no test sees ${name}`),
    ...Object.keys(exceptions)
      .filter((name) => !unobservedNames.includes(name) && !racedNames.has(name))
      .map((name) => `the exception "${name}" is seen, or listed nowhere`),
  ];
}

function main(): number {
  const { values: options } = parseCommandLine(import.meta.filename, {
    options: { clear: { type: 'boolean', default: false } },
  });
  if (options.clear) {
    rmSync(folder, { recursive: true, force: true });
    return 0;
  }
  const files = globSync(path.join(folder, '*.jsonl'));
  if (files.length === 0) {
    console.error(
      'observed-codes: build/observed-codes is empty; run `npm test` and `npm run test:long` first',
    );
    return 1;
  }
  const lines = files.flatMap((file) => readFileSync(file, 'utf8').split('\n').filter(Boolean));
  const observedPairs = new Set(lines.map((line) => (JSON.parse(line) as [string, string]).join(' ')));
  const documents = surfaces.map(({ name }) => {
    const file = path.join(root, 'src/contract', name, 'bundle.json');
    return { name, document: JSON.parse(readFileSync(file, 'utf8')) as Document };
  });
  const codes = listedCodes(documents);
  const findings = findUnobserved(codes, observedPairs, unobservedCodes);
  for (const finding of findings) console.error(`observed-codes: ${finding}`);
  console.log(
    `observed-codes: ${codes.length} listed codes, ` +
      `${Object.keys(unobservedCodes).length} exceptions, ${findings.length} findings`,
  );
  return findings.length === 0 ? 0 : 1;
}

if (process.argv[1] === import.meta.filename) process.exitCode = main();
