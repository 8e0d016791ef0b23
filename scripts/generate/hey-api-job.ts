// Runs hey-api: node hey-api-job.ts (BUNDLE OUTPUT CONTAINER)… It runs in its own process, so that the
// caller can search its output for failures that the exit code does not report. All clients share that
// process: loading hey-api and TypeScript takes as much processor time as generating a client.

import { readFileSync } from 'node:fs';
import { createClient } from '@hey-api/openapi-ts';

const words = process.argv.slice(2);
for (let index = 0; index < words.length; index += 3) {
  const [bundle, output, containerName] = words.slice(index, index + 3);
  if (bundle === undefined || output === undefined || containerName === undefined)
    throw new Error('usage: hey-api-job (BUNDLE OUTPUT CONTAINER)…');
  await generate(bundle, output, containerName);
}

// Each union member declares its tag as a const. From the mapping of a discriminator, hey-api would
// generate the tag a second time, so the discriminators are removed.
function readDocument(bundle: string): Record<string, unknown> {
  return JSON.parse(readFileSync(bundle, 'utf8'), (name: string, value: unknown) =>
    name === 'discriminator' && typeof value === 'object' ? undefined : value,
  ) as Record<string, unknown>;
}

async function generate(bundle: string, output: string, containerName: string): Promise<void> {
  await createClient({
    input: readDocument(bundle),
    output: { path: output, module: { extension: '.ts' } },
    logs: { level: 'warn', file: false },
    interactive: false,
    plugins: [
      '@hey-api/client-fetch',
      '@hey-api/typescript',
      // With one container, `ai.generateText` becomes `container.ai.generateText()`. Our clients pass an HTTP
      // client of their own to it; a default one would only make their packages larger.
      { name: '@hey-api/sdk', client: false, operations: { strategy: 'single', containerName } },
    ],
  });
}
