// Size of a client in a web page: bundled, minified and compressed.

import { gzipSync } from 'node:zlib';
import path from 'node:path';
import { build } from 'esbuild';
import { describe, expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '../..');

async function measureCompressedBytes(entry: string): Promise<number> {
  const { outputFiles } = await build({
    entryPoints: [path.join(root, entry)],
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    write: false,
  });
  return gzipSync(outputFiles[0]?.contents ?? new Uint8Array(), { level: 9 }).byteLength;
}

describe('a client in a page', () => {
  // The budgets are the sizes of 2026-11-28 plus a tenth; a new operation adds about 50 bytes.
  test.each([
    ['clients/gateway/src/index.ts', 18_400],
    ['clients/agent/src/index.ts', 10_500],
    ['clients/agent/src/classic.ts', 10_500],
  ])('%s stays below its budget', async (entry, budget) => {
    expect(await measureCompressedBytes(entry)).toBeLessThan(budget);
  });
});
