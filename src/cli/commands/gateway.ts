// `townhall gateway`: runs the gateway alone, with its log as JSON lines on standard output.
import type { OpenedProject } from '../../deploy/index.ts';
import type { CreateGatewayOptions, Gateway } from '../../gateway/compose.ts';
import {
  type GatewayConfig,
  gatewaySettings,
  readGatewayConfig,
  requireStorage,
} from '../../gateway/config.ts';
import { databaseExists, openGatewayDatabase } from '../../gateway/database.ts';
import { systemClock } from '../../kernel/clock.ts';
import { closeOnFailure } from '../../kernel/closers.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { action, type Command } from '../command-line/command.ts';
import { version } from '../command-line/version.ts';
import { explainListenErrors, gatewayAddresses, requireAddresses } from '../servers/addresses.ts';
import { announceListening } from '../servers/announce.ts';
import { limitStreamGarbage, saveMemoryWhileIdle } from '../servers/heap.ts';
import { untilStopped } from '../servers/until-stopped.ts';
import { runWatched, watchOption } from '../servers/watch.ts';
import { readWorkerStart, type WorkerStart } from '../servers/workers/messages.ts';
import { runPrimary } from '../servers/primary.ts';
import { runWorker, workerBreakers } from '../servers/workers/worker.ts';

// A load balancer polls /ready several times a second: 400 ms of notice let it choose another
// gateway, and requests on open connections are answered for another 400 ms. New work is refused
// within a second of the signal.
const closeOptions = { noticeMs: 400, lingerMs: 400 };

export const command: Command = {
  description: [
    'Runs the gateway until SIGTERM or Ctrl-C. Once it is ready it logs one line {"msg":"listening","url":"…"}.',
    'Each option can also be set in the environment; settings without an option can be set only there. The environment can',
    'also hold the keys of model providers, logins and payments, such as OPENAI_API_KEY; a key that an administrator has',
    'stored takes precedence. "townhall models check" tries the keys.',
  ],
  actions: [
    action({
      settings: { table: gatewaySettings },
      options: { watch: watchOption },
      async run({ settings, env, options }) {
        if (options.watch) return runWatched();
        const config = readGatewayConfig(settings, env);
        const worker = readWorkerStart(env);
        if (worker !== null) return serveAsWorker(config, { env, worker });
        await requireStorage(config, systemClock);
        await requireAddresses(gatewayAddresses(config));
        return config.workers > 1 ? serveWithWorkers(config, env) : serveAlone(config, env);
      },
    }),
  ],
};

type Environment = Readonly<Record<string, string | undefined>>;

async function serveAlone(config: GatewayConfig, env: Environment): Promise<number> {
  const gateway = await openGateway(config, env);
  const listening = explainListenErrors(gateway.listen(), gatewayAddresses(config));
  const { url } = await closeOnFailure(listening, () => gateway.close());
  limitStreamGarbage();
  saveMemoryWhileIdle();
  return untilStopped(
    () => announceListening(url),
    () => gateway.close(closeOptions),
  );
}

async function serveAsWorker(
  config: GatewayConfig,
  { env, worker }: { env: Environment; worker: WorkerStart },
): Promise<number> {
  const gateway = await openGateway(config, env, {
    databaseLimits: { maxConnections: worker.maxConnections },
    servesMetrics: false,
    breakerChannel: workerBreakers(),
  });
  limitStreamGarbage();
  saveMemoryWhileIdle();
  const log = createLog({ level: config.logLevel, redactor: createRedactor() });
  const run = runWorker({ gateway, start: worker, stop: () => gateway.close(closeOptions), log });
  return closeOnFailure(run, () => gateway.close());
}

function serveWithWorkers(config: GatewayConfig, env: Environment): Promise<number> {
  const log = createLog({ level: config.logLevel, redactor: createRedactor() });
  return runPrimary({ config, env, words: process.argv.slice(2), log, clock: systemClock });
}

async function openGateway(
  config: GatewayConfig,
  env: Environment,
  overrides: Partial<CreateGatewayOptions> = {},
): Promise<Gateway> {
  const redactor = createRedactor();
  const log = createLog({ level: config.logLevel, redactor });
  // The database opens while the services' modules load; each takes about half of the start.
  const openingDatabase = databaseExists(config)
    ? openGatewayDatabase(config, { log, limits: overrides.databaseLimits })
    : undefined;
  // The promise is awaited below. Without this handler, a failure before that would be an unhandled
  // rejection, which ends the process.
  openingDatabase?.catch(() => {});
  const loading = Promise.all([import('../../gateway/compose.ts'), loadProject(config)]);
  const [{ createGateway }, project] = await closeOnFailure(loading, async () =>
    (await openingDatabase)?.close(),
  );
  return createGateway(config, {
    env,
    log,
    redactor,
    clock: systemClock,
    version,
    project,
    openingDatabase,
    ...overrides,
  });
}

async function loadProject({ project }: GatewayConfig): Promise<OpenedProject | undefined> {
  if (project === undefined) return undefined;
  const { openProject } = await import('../../deploy/index.ts');
  return openProject(project);
}
