// Runs before each test file: the sources are run as they are, which needs a Node that strips types.
import { afterAll } from 'vitest';
import { destroyIdle } from './database-reuse.ts';

if (Number.parseInt(process.versions.node, 10) < 24) {
  throw new Error(
    `The tests need Node 24 or newer and run on ${process.version}. Use "npm test", which brings its own.`,
  );
}

afterAll(destroyIdle);
