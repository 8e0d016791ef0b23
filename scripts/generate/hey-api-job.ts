// One run of hey-api: node hey-api-job.ts BUNDLE OUTPUT CONTAINER. It is a process of its own so
// that runs are parallel, and because its caller reads its output for failures that the exit code
// does not report.

import { readFileSync } from 'node:fs';
import { createClient } from '@hey-api/openapi-ts';

const [bundle, output, containerName] = process.argv.slice(2);
if (bundle === undefined || output === undefined || containerName === undefined)
  throw new Error('usage: hey-api-job BUNDLE OUTPUT CONTAINER');

// Each union member has its tag as a const. From a mapping hey-api would generate the tag a second
// time.
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
