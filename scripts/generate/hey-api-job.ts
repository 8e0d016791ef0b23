// One run of hey-api as a process of its own: node hey-api-job.ts BUNDLE OUTPUT CONTAINER. In a process of its own it
// runs beside the others, and everything that it prints can be read for what it does not say by its exit code.

import { createClient } from '@hey-api/openapi-ts';

const [bundle, output, containerName] = process.argv.slice(2);
if (bundle === undefined || output === undefined || containerName === undefined)
  throw new Error('usage: hey-api-job BUNDLE OUTPUT CONTAINER');

await createClient({
  // An absolute path: hey-api takes "a/b" for the name of a project in its own cloud.
  input: bundle,
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
