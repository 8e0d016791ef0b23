// Three projects share the test files: `embedded` and `postgres` have a database,
// `once` has none. A fourth, `replaced-modules`, has the few files that replace a module of Node. A file whose promise depends on the database engine is listed for
// both; a file of commands and processes runs on the embedded default; every other
// file with a database runs on PostgreSQL. A file that no list names lands in `once`.
//
// `npm test` leaves out what takes long by nature: real deployments, processes and
// terminals, installed packages, a real browser, crashes and other injected faults,
// fuzzing. `npm run test:long` (TEST_LONG=1) runs exactly those.
import { globSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

const withDatabase = [
  'test/{agent,cli,deploy,fault-injection}/**/*.test.ts',
  'test/gateway/*.test.ts',
  'test/gateway/!(ai|credits)/**/*.test.ts',
  'test/gateway/credits/*.test.ts',
  'test/gateway/credits/!(journal)/**/*.test.ts',
  // Of the tests of models only these have a database; the rest run on a ledger in memory.
  'test/gateway/ai/**/{asr,async-video,background-responses,gateway,image,jobs,killed-server,media,paid,response-socket,stopped-payers,stored-responses,tts,video}.test.ts',
  'test/clients/real-gateway.test.ts',
  'test/kernel/data/{changes,database,idempotency,jobs,migrate}.test.ts',
];

// Transactions, locks, notifications, recovery after a crash: here the two engines can differ.
const onBothEngines = [
  'test/agent/idempotency.test.ts',
  'test/agent/sessions/{all-sessions,capacity,chat,context,crash,events,fold,prompt-cache,regenerate,runs,search,undo}.test.ts',
  'test/cli/{db,ledger}.test.ts',
  'test/deploy/deploy.test.ts',
  'test/fault-injection/drain.test.ts',
  'test/gateway/{descriptors,directory,limits,world}.test.ts',
  'test/gateway/accounts/{device,revocation,tokens}.test.ts',
  'test/gateway/ai/**/{background-responses,jobs,killed-server,paid,stored-responses}.test.ts',
  'test/gateway/audit/chain.test.ts',
  'test/gateway/bureaus/bureaus.test.ts',
  'test/gateway/cities/cities.test.ts',
  'test/gateway/credits/*.test.ts',
  'test/gateway/credits/!(journal)/**/*.test.ts',
  'test/gateway/env/rotation.test.ts',
  'test/gateway/payments/webhooks.test.ts',
  'test/gateway/services/charge.test.ts',
  'test/gateway/usage/usage.test.ts',
  'test/kernel/data/{changes,database,idempotency,jobs,migrate}.test.ts',
];

// Commands, processes and plugins of the local edition, whose database is the embedded one.
const onEmbeddedAlone = [
  'test/agent/{access,variants}.test.ts',
  'test/agent/processes/*.test.ts',
  'test/agent/plugins/{example,mcp,mcp-npm}.test.ts',
  'test/agent/services/services.test.ts',
  'test/cli/{call,commands,completions,env-beside-server,first-plugin,logs,models,refused-starts,start,terminal}.test.ts',
  'test/deploy/{containers,declaration,failures,render}.test.ts',
  'test/docs/{guides-run,samples-run,workflows}.test.ts',
  'test/fault-injection/hostile-bodies.test.ts',
  'test/gateway/accounts/behind-proxy.test.ts',
  'test/gateway/env/local-master-key.test.ts',
  'test/kernel/data/embedded.test.ts',
];

// Need a PostgreSQL server: runs of their own, several gateway processes.
const onPostgresAlone = ['test/support/exit-code.test.ts', 'test/cli/workers.test.ts'];

const long = [
  'test/agent/sandbox/escapes.test.ts',
  'test/agent/sessions/crash.test.ts',
  'test/browser/**/*.test.ts',
  'test/cli/{db,first-plugin,refused-starts,terminal,workers}.test.ts',
  'test/clients/package.test.ts',
  'test/deploy/{containers,deploy,failures,resources}.test.ts',
  'test/docs/{guides-run,samples-run,workflows}.test.ts',
  'test/fault-injection/**/*.test.ts',
  'test/fuzz/**/*.test.ts',
  'test/gateway/credits/{crash,store-equivalence-long}.test.ts',
  'test/packages/**/*.test.ts',
  'test/simulation/planted-bugs.test.ts',
  'test/support/exit-code.test.ts',
];

// Foreign tools as judges have a configuration of their own, vitest.oracles.config.ts.
const elsewhere = ['test/{oracles,languages}/**/*.test.ts'];

// test/ has packages of its own, and some of them bring their tests along.
const packages = 'test/node_modules/**';

const isLong = process.env['TEST_LONG'] === '1';

// The workers share two cores with a database server, with Chromium and with the programs that
// tests start. These times only end what hangs: a test that is green never waits for them.
const shared = {
  // The keywords of the kernel work in a validator of the same copy.
  alias: { ajv: join(import.meta.dirname, 'node_modules/ajv') },
  setupFiles: ['test/support/setup.ts'],
  testTimeout: 90_000,
  hookTimeout: 120_000,
  expect: { poll: { timeout: 30_000 } },
  pool: 'forks' as const,
  // The files of a worker share the loaded sources, and the embedded databases. No test of theirs replaces a
  // module or a global.
  isolate: false,
};

// These replace a module of Node, for faults of a disk and for the paths of another platform, so each has its
// own copy of the sources.
const withReplacedModules = ['test/deploy/{log-file,render-on-windows,supervisor-stop}.test.ts'];

// With TEST_LONG only the long files of a project, otherwise all others.
function filesOf(
  include: readonly string[],
  exclude: readonly string[] = [],
): { include: string[]; exclude: string[] } {
  if (!isLong) return { include: [...include], exclude: [...exclude, ...long, packages] };
  const longFiles = new Set(globSync(long));
  return {
    include: globSync([...include], { exclude: [packages] }).filter((file) => longFiles.has(file)),
    exclude: [...exclude, packages],
  };
}

export default defineConfig({
  test: {
    // A worker keeps the loaded sources and peaks at 1.7 GB.
    maxWorkers: totalmem() < 12 * 2 ** 30 ? 2 : 4,
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          ...shared,
          name: 'embedded',
          ...filesOf([...onBothEngines, ...onEmbeddedAlone]),
          globalSetup: ['test/support/embedded-setup.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'postgres',
          ...filesOf([...withDatabase, ...onPostgresAlone], [...onEmbeddedAlone, ...withReplacedModules]),
          globalSetup: ['test/support/postgres-setup.ts'],
        },
      },
      {
        test: {
          ...shared,
          name: 'once',
          ...filesOf(
            ['test/**/*.test.ts'],
            [...withDatabase, ...onEmbeddedAlone, ...onPostgresAlone, ...elsewhere],
          ),
        },
      },
      {
        test: {
          ...shared,
          name: 'replaced-modules',
          isolate: true,
          ...filesOf(withReplacedModules),
        },
      },
    ],
  },
});
