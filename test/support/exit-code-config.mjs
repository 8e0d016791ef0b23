// A run of one small test file with the global setup of PostgreSQL, for the test of the exit code.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/support/exit-code-case.ts'],
    globalSetup: ['test/support/postgres-setup.ts'],
    pool: 'forks',
    teardownTimeout: 60_000,
  },
});
