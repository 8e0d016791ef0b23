// Third-party tools that check the contract (`npm run test:oracles`) and generated clients in other languages
// (`npm run test:languages`). The first run installs the tools at their pinned versions, which takes minutes.
import { defineConfig } from 'vitest/config';

const shared = {
  setupFiles: ['test/support/setup.ts'],
  globalSetup: ['test/support/embedded-setup.ts'],
  testTimeout: 600_000,
  hookTimeout: 600_000,
  expect: { poll: { timeout: 30_000 } },
  pool: 'forks' as const,
};

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      { test: { ...shared, name: 'oracles', include: ['test/oracles/*.test.ts'] } },
      { test: { ...shared, name: 'languages', include: ['test/languages/*.test.ts'] } },
    ],
  },
});
