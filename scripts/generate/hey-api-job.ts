// One run of hey-api: node hey-api-job.ts BUNDLE OUTPUT CONTAINER. As a process it runs beside the others, and the caller
// reads its output for failures that its exit code does not report.

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
