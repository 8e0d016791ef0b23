// Writes `x-codeSamples` into a bundled document: curl, TypeScript and Python for every operation that
// a program calls. A file of examples/operations replaces a generated sample or is added to it; all other
// samples are rendered from the operation's own examples.
//
//   examples/operations/ai-stream-text.ts                   instead of the generated TypeScript
//   examples/operations/openai/ai-create-chat-completion.ts beside it, under the label "TypeScript (openai)"

import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { isAlias } from './aliases.ts';
import { readSample } from '../docs/samples.ts';
import { type Document, type Operation, operationsOf, type PlacedOperation } from './document.ts';
import { withoutSample } from './sample-choices.ts';
import { renderCurl, renderPython, renderTypeScript } from './sample-render.ts';
import { samplePath, sampleRequest } from './sample-request.ts';
import type { Surface } from './surfaces.ts';

export interface CodeSample {
  lang: string;
  label: string;
  source: string;
}

export type SampledOperation = Operation & { 'x-codeSamples'?: CodeSample[] };

/** The folder of the handwritten samples, from the root of the repository. */
export const sampleFolder = 'examples/operations';

const languages = [
  { extension: 'sh', lang: 'Shell', label: 'curl', render: renderCurl },
  { extension: 'ts', lang: 'TypeScript', label: 'TypeScript', render: renderTypeScript },
  { extension: 'py', lang: 'Python', label: 'Python', render: renderPython },
] as const;

/**
 * Throws for an operation without an example, and for a handwritten sample without an operation.
 */
export function addSamples(document: Document, surface: Surface, root: string): void {
  const ownSamples = readHandwritten(path.join(root, sampleFolder));
  const operations = operationsOf(document);
  for (const endpoint of operations) {
    if (withoutSample.includes(endpoint.id) || isAlias(endpoint.operation)) continue;
    const endpointSamples =
      surface.name === 'gateway' ? ownSamples.filter(({ file }) => file === fileOf(endpoint.id)) : [];
    (endpoint.operation as SampledOperation)['x-codeSamples'] = languages.flatMap(
      ({ extension, lang, label, render }) => {
        const files = endpointSamples.filter((file) => file.extension === extension);
        const mainFile = files.find(({ variant }) => variant === undefined);
        return [
          { lang, label, source: mainFile?.source ?? render(sampleRequest(document, surface, endpoint)) },
          ...files
            .filter(({ variant }) => variant !== undefined)
            .map(({ variant, source }) => ({ lang, label: `${label} (${variant})`, source })),
        ];
      },
    );
  }
  for (const endpoint of operations.filter(({ operation }) => isAlias(operation)))
    addAliasSamples(document, surface, endpoint);
  const straySample = ownSamples.find(({ file }) => !operations.some(({ id }) => fileOf(id) === file));
  if (surface.name === 'gateway' && straySample !== undefined)
    throw new Error(
      `${sampleFolder} has a sample of ${straySample.file}, which is no operation of the gateway`,
    );
}

/** An alias has the samples of its operation, with its own path in curl and Python. */
function addAliasSamples(document: Document, surface: Surface, alias: PlacedOperation): void {
  const { 'x-alias-of': id } = alias.operation;
  const endpoint = operationsOf(document).find((candidate) => candidate.id === id);
  if (endpoint === undefined) throw new Error(`${alias.id} is an alias of the unknown operation ${id}`);
  const samples = (endpoint.operation as SampledOperation)['x-codeSamples'] ?? [];
  const target = (path: string) => samplePath(document, surface, { ...endpoint, path });
  (alias.operation as SampledOperation)['x-codeSamples'] = languages.flatMap(({ label }) => {
    const sample = samples.find((candidate) => candidate.label === label);
    if (sample === undefined) return [];
    return [{ ...sample, source: sample.source.replaceAll(target(endpoint.path), target(alias.path)) }];
  });
}

interface Handwritten {
  file: string;
  variant: string | undefined;
  extension: string;
  source: string;
}

function readHandwritten(folder: string): Handwritten[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .sort()
    .flatMap((name) => {
      const [, variant, file, extension] = /^(?:(\w+)[/\\])?([\w-]+)\.(sh|ts|py)$/.exec(name) ?? [];
      if (file === undefined || extension === undefined) return [];
      return [{ file, variant, extension, source: readSample(path.join(folder, name), 'sample') }];
    });
}

/** `ai.streamText` has the file `ai-stream-text`. */
function fileOf(id: string): string {
  return id.replaceAll('.', '-').replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
