// The operations of the three documents with their published code samples.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { type Document, operationsOf } from '../../scripts/generate/document.ts';
import type { CodeSample, SampledOperation } from '../../scripts/generate/samples.ts';
import { surfaces } from '../../scripts/generate/surfaces.ts';

export interface SampledOperationEntry {
  surface: string;
  id: string;
  /** The original operation, when this is another path of it. */
  aliasOf: string | undefined;
  samples: readonly CodeSample[];
}

export function sampledOperations(): SampledOperationEntry[] {
  return surfaces.flatMap(({ name }) => {
    const file = path.join(import.meta.dirname, '../../src/contract', name, 'bundle.json');
    const document = JSON.parse(readFileSync(file, 'utf8')) as Document;
    return operationsOf(document).map(({ id, operation }) => ({
      surface: name,
      id,
      aliasOf: operation['x-alias-of'],
      samples: (operation as SampledOperation)['x-codeSamples'] ?? [],
    }));
  });
}
