// One run of hey-api: node hey-api-job.ts BUNDLE OUTPUT CONTAINER. As a process it runs beside the others, and the caller
// reads its output for failures that its exit code does not report.

import { readFileSync } from 'node:fs';
import { createClient } from '@hey-api/openapi-ts';

const [bundle, output, containerName] = process.argv.slice(2);
if (bundle === undefined || output === undefined || containerName === undefined)
  throw new Error('usage: hey-api-job BUNDLE OUTPUT CONTAINER');

// The tag of each member of a union is a const of that member. hey-api would write the tag of the mapping beside it once more.
const document = JSON.parse(readFileSync(bundle, 'utf8'), (name: string, value: unknown) =>
  name === 'discriminator' && typeof value === 'object' ? undefined : value,
) as Record<string, unknown>;

await createClient({
  input: document,
  output: { path: output, module: { extension: '.ts' } },
  logs: { level: 'warn', file: false },
  interactive: false,
  plugins: [
    '@hey-api/client-fetch',
    '@hey-api/typescript',
    // With one container, `ai.generateText` becomes `container.ai.generateText()`.
    { name: '@hey-api/sdk', operations: { strategy: 'single', containerName } },
  ],
});
