// Runs before each test file. Sources run without a build, which needs a Node that strips types.
import { afterAll, inject } from 'vitest';
import { compileCache } from './compile-cache.ts';
import { destroyIdle } from './database-reuse.ts';
import { recordObservedErrors } from './observed-errors.ts';

process.env['NODE_COMPILE_CACHE'] ??= compileCache;

recordObservedErrors();

if (Number.parseInt(process.versions.node, 10) < 24) {
  throw new Error(
    `The tests need Node 24 or newer and run on ${process.version}. Use "npm test", which brings its own.`,
  );
}

// The setup of the embedded engine removes the folders of databases that stay open for the worker's
// next file.
afterAll(() => destroyIdle(inject('databaseSource')?.engine === 'embedded' ? 1 : 0));
