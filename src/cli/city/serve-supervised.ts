// `townhall city serve`: a gateway under a supervisor, controlled over its IPC channel. It accepts
// connections from the supervisor's listening socket on request, and exits when the supervisor exits.
import { listeningFd, openProject } from '../../deploy/index.ts';
import type { GatewayMessage, GatewayReply, GatewayRequest, StartRequest } from '../../deploy/index.ts';
import { createGateway } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import { readGatewayConfig, requireStorage } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { errorText } from '../../kernel/error-text.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import { version } from '../command-line/version.ts';
import { announceListening } from '../servers/announce.ts';
import { limitStreamGarbage, saveMemoryWhileIdle } from '../servers/heap.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Serves until the supervisor sends `leave` or disconnects. Returns the exit code. */
export async function serveSupervised(env: Environment): Promise<number> {
  if (process.send === undefined)
    throw new SettingError(
      '"townhall city serve" is for the supervisor; run "townhall gateway" or "townhall city run".',
    );
  const server = supervisedGateway(env);
  process.on('message', (message: GatewayMessage) => {
    const reply = (result: GatewayReply): void => void process.send?.(result, undefined, {}, () => undefined);
    server.handle(message).then(
      () => reply({ id: message.id, ok: true }),
      (error: unknown) => reply({ id: message.id, ok: false, message: errorText(error) }),
    );
  });
  // The supervisor has exited: close at once.
  process.on('disconnect', () => server.close(0));
  // A terminal or a service manager may signal the whole process group; only the supervisor decides
  // when this process stops.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});
  await server.closed;
  if (process.connected) process.disconnect();
  return 0;
}

interface SupervisedGateway {
  /** Resolves when the request is done; rejects with the reason for the supervisor. */
  handle(request: GatewayRequest): Promise<void>;
  /** Starts to close the gateway, after a start that is in progress; later calls do nothing. */
  close(lingerMs: number): void;
  readonly closed: Promise<void>;
}

function supervisedGateway(env: Environment): SupervisedGateway {
  let gateway: Gateway | undefined;
  let start: Promise<void> | undefined;
  let isClosing = false;
  const closure = Promise.withResolvers<void>();

  function requireGateway(): Gateway {
    if (gateway === undefined) throw new Error('The gateway has not been started yet.');
    return gateway;
  }

  function close(lingerMs: number): void {
    if (isClosing) return;
    isClosing = true;
    // A start cannot be interrupted: wait until its gateway exists, so that its database is closed too.
    Promise.resolve(start)
      .catch(() => undefined)
      .then(() => gateway?.close({ lingerMs }))
      .then(closure.resolve, closure.reject);
  }

  async function startGateway(input: StartRequest): Promise<void> {
    gateway = await createSupervised(input, env);
    if (isClosing) throw new Error('The gateway was stopped while it started.');
    await gateway.listen({ path: input.socket, url: input.url });
  }

  return {
    closed: closure.promise,
    close,
    async handle(request) {
      switch (request.kind) {
        case 'start':
          return (start = startGateway(request.input));
        case 'adopt':
          await requireGateway().listen({ fd: listeningFd, url: request.input.url });
          announceListening(request.input.url);
          limitStreamGarbage();
          return saveMemoryWhileIdle();
        case 'record':
          return requireGateway().recordCity(request.input);
        case 'leave':
          // The reply confirms that this gateway accepts no more connections. The supervisor then waits
          // for the process to finish its requests and exit.
          return close(request.input.lingerMs);
      }
    },
  };
}

async function createSupervised(
  { project, stateDirectory }: StartRequest,
  env: Environment,
): Promise<Gateway> {
  const config = readGatewayConfig({}, env);
  await requireStorage(config, systemClock);
  const redactor = createRedactor();
  const log = createLog({ level: config.logLevel, redactor });
  return createGateway(config, {
    env,
    log,
    redactor,
    clock: systemClock,
    version,
    project: await openProject(project, stateDirectory),
  });
}
