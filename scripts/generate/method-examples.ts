// Writes the TypeScript sample of each operation into the comment of its method, so that an editor shows it.
import { type Document, operationsOf } from './document.ts';
import type { SampledOperation } from './samples.ts';

/** The text of sdk.gen.ts with an `@example` for each method whose operation has a sample. */
export function addMethodExamples(text: string, document: Document): string {
  const samples = new Map(
    operationsOf(document).flatMap(({ id, operation }) => {
      const sample = (operation as SampledOperation)['x-codeSamples']?.find(
        ({ label }) => label === 'TypeScript',
      );
      return sample === undefined ? [] : [[id, callOf(sample.source)] as const];
    }),
  );
  let service = '';
  return text
    .split(/(?=^export class )/m)
    .map((part) => {
      service = /^export class (\w+)/.exec(part)?.[1] ?? '';
      return part.replaceAll(/ {4} \*\/\n {4}public (\w+)</g, (match, method: string) => {
        const sample = samples.get(`${service.charAt(0).toLowerCase()}${service.slice(1)}.${method}`);
        return sample === undefined ? match : `${commentOf(sample)}${match}`;
      });
    })
    .join('');
}

/** The sample without its imports and the creation of the client, which all samples have in common. */
function callOf(source: string): string {
  const lines = source.split('\n');
  const start = lines.findIndex((line) => line.startsWith('const client = '));
  const end = start < 0 ? -1 : lines.findIndex((line, index) => index >= start && line.endsWith(');'));
  return lines
    .slice(end + 1)
    .join('\n')
    .trim();
}

function commentOf(sample: string): string {
  const lines = ['', '@example', '```ts', ...sample.replaceAll('*/', '* /').split('\n'), '```'];
  return lines.map((line) => `     *${line === '' ? '' : ` ${line}`}\n`).join('');
}
