// Everything that touches the database runs twice, on the embedded engine and on a real PostgreSQL server;
// everything else runs once. A test file that no list names lands in `once`, so none is forgotten.
import { defineConfig } from 'vitest/config';

// Of the tests of models only these have a database; the rest run on a ledger in memory.
const onBothEngines = [
  'test/{agent,cli,deploy,fault-injection}/**/*.test.ts',
  'test/gateway/*.test.ts',
  'test/gateway/!(ai)/**/*.test.ts',
  'test/gateway/ai/{gateway,paid}.test.ts',
  'test/gateway/ai/media/{asr,image,media,tts,video}.test.ts',
  'test/gateway/ai/jobs/jobs.test.ts',
  'test/gateway/ai/providers/async-video.test.ts',
  'test/clients/real-gateway.test.ts',
  'test/kernel/data/{database,migrate,jobs,changes,idempotency}.test.ts',
];
// These need a database, and what they are about is not the data: programs, doors, commands, declarations.
const onEmbeddedAlone = [
  'test/fault-injection/hostile-bodies.test.ts',
  'test/kernel/data/embedded.test.ts',
  'test/agent/{access,variants}.test.ts',
  'test/agent/{programs/*,services/services}.test.ts',
  'test/agent/plugins/{example,mcp,mcp-npm}.test.ts',
  'test/cli/{call,commands,completions,models,refused-starts,start,terminal}.test.ts',
  'test/deploy/{declaration,failures,render}.test.ts',
];

// This one starts runs of its own on a PostgreSQL.
const onPostgresAlone = ['test/support/exit-code.test.ts'];

// The workers share two cores with a database server, with Chromium and with the programs that tests start. These times
// only end what hangs: a test that is green never waits for them.
const shared = {
  setupFiles: ['test/support/setup.ts'],
  testTimeout: 90_000,
  hookTimeout: 120_000,
  expect: { poll: { timeout: 30_000 } },
  pool: 'forks' as const,
};

export default defineConfig({
  test: {
    maxWorkers: 4,
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          ...shared,
          name: 'embedded',
          include: [...onBothEngines, ...onEmbeddedAlone],
          globalSetup: ['test/support/embedded-setup.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'postgres',
          include: [...onBothEngines, ...onPostgresAlone],
          exclude: onEmbeddedAlone,
          globalSetup: ['test/support/postgres-setup.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'once',
          include: ['test/**/*.test.ts'],
          exclude: [...onBothEngines, ...onEmbeddedAlone, ...onPostgresAlone],
        },
      },
    ],
  },
});
