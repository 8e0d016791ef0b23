// A vitest configuration with one small test file and the global setup of PostgreSQL, for
// exit-code.test.ts.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/support/exit-code-case.ts'],
    globalSetup: ['test/support/postgres-setup.ts'],
    pool: 'forks',
    teardownTimeout: 60_000,
  },
});
