// Runs before each test file: the sources are run as they are, which needs a Node that strips types.
import { afterAll } from 'vitest';
import { compileCache } from './compile-cache.ts';
import { destroyIdle } from './database-reuse.ts';

process.env['NODE_COMPILE_CACHE'] ??= compileCache;

if (Number.parseInt(process.versions.node, 10) < 24) {
  throw new Error(
    `The tests need Node 24 or newer and run on ${process.version}. Use "npm test", which brings its own.`,
  );
}

afterAll(destroyIdle);
