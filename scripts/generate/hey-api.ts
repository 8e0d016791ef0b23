// Runs hey-api for a bundle and compares its output with the bundle: hey-api exits 0 even when it
// has generated nothing, and it omits what it cannot resolve.

import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { type Document, operationsOf } from './document.ts';
import { typeStem } from './operations.ts';
import type { Surface } from './surfaces.ts';
import { runNode } from './tools.ts';

const requiredFiles = [
  'index.ts',
  'types.gen.ts',
  'sdk.gen.ts',
  'client.gen.ts',
  'client/client.gen.ts',
  'client/index.ts',
  'core/types.gen.ts',
];

export interface ClientJob {
  surface: Surface;
  bundle: string;
  /** The folder of the client, which is wiped. */
  output: string;
}

/** Generates a client from each bundle; throws when a part of a bundle is missing. */
export async function generateClients(jobs: readonly ClientJob[], root: string): Promise<void> {
  const run = await runNode(
    path.join(import.meta.dirname, 'hey-api-job.ts'),
    jobs.flatMap(({ surface, bundle, output }) => [
      path.resolve(bundle),
      path.resolve(output),
      surface.container,
    ]),
    { cwd: root },
  );
  const names = jobs.map(({ surface }) => surface.name).join(', ');
  const printedText = `${run.stdout}\n${run.stderr}`;
  const complaint = /^.*(?:skipping|unresolv|⚠|❌|\bwarn(?:ing)?\b|\berror\b|\bfailed\b).*$/im.exec(
    printedText,
  )?.[0];
  if (run.code !== 0 || complaint !== undefined)
    throw new Error(`hey-api on ${names}: ${complaint ?? `exit code ${run.code}`}\n${printedText.trim()}`);
  for (const job of jobs) requireComplete(job);
}

function requireComplete({ surface, bundle, output }: ClientJob): void {
  const document = JSON.parse(readFileSync(bundle, 'utf8')) as Document;
  const gaps = findGaps(document, surface, (file) => {
    const fullPath = path.join(output, file);
    return existsSync(fullPath) && statSync(fullPath).isFile() ? readFileSync(fullPath, 'utf8') : undefined;
  });
  if (gaps.length > 0)
    throw new Error(`hey-api on ${surface.name} exited 0, but:\n${gaps.map((gap) => `  ${gap}`).join('\n')}`);
}

/**
 * Parts of the bundle that a generated client lacks; `read` returns a file's text, or undefined
 * when it is absent.
 */
export function findGaps(
  document: Document,
  surface: Surface,
  read: (file: string) => string | undefined,
): string[] {
  const gaps = requiredFiles
    .filter((file) => (read(file) ?? '').trim() === '')
    .map((file) => `${file} is absent or empty`);
  const types = read('types.gen.ts') ?? '';
  const sdk = read('sdk.gen.ts') ?? '';
  const exportedNames = new Set(
    Array.from(types.matchAll(/^export (?:type|interface|const enum|enum) (\w+)/gm), (match) => match[1]),
  );
  for (const { id } of operationsOf(document)) {
    const stem = typeStem(id);
    for (const suffix of ['Data', 'Responses']) {
      if (!exportedNames.has(`${stem}${suffix}`))
        gaps.push(`types.gen.ts has no ${stem}${suffix}, the types of ${id}`);
    }
    const method = id.split('.')[1];
    if (!new RegExp(`public ${method}<`).test(sdk)) gaps.push(`sdk.gen.ts has no method for ${id}`);
  }
  for (const name of Object.keys(document.components?.schemas ?? {})) {
    if (!exportedNames.has(name)) gaps.push(`types.gen.ts has no ${name}, a schema of the contract`);
  }
  if (!sdk.includes(`export class ${surface.container} `))
    gaps.push(`sdk.gen.ts has no class ${surface.container}`);
  return gaps;
}
