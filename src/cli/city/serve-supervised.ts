// `townhall city serve`: a gateway under a supervisor, over the channel that it was started with. It takes callers from
// the supervisor's listening socket when it is told to, and ends when the supervisor does.
import { listeningFd, openProject } from '../../deploy/index.ts';
import type { Answer, Question } from '../../deploy/index.ts';
import { createGateway } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import { readGatewayConfig, requireFolders } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import { announceListening } from '../servers/announce.ts';
import { keepStreamsYoung } from '../servers/heap.ts';
import { version } from '../command-line/version.ts';

/** Runs until the supervisor ends it. */
export async function serveSupervised(env: Readonly<Record<string, string | undefined>>): Promise<number> {
  if (process.send === undefined)
    throw new SettingError(
      '"townhall city serve" is for the supervisor; run "townhall gateway" or "townhall city run".',
    );
  let gateway: Gateway | undefined;
  const ended = Promise.withResolvers<number>();

  async function answer(question: Question): Promise<void> {
    switch (question.kind) {
      case 'start': {
        const { project, stateDirectory, socket, url } = question.input;
        const config = readGatewayConfig({}, env);
        await requireFolders(config);
        const redactor = createRedactor();
        const log = createLog({ level: config.logLevel, redactor });
        gateway = await createGateway(config, {
          env,
          log,
          redactor,
          clock: systemClock,
          version,
          project: await openProject(project, stateDirectory),
        });
        await gateway.listen({ path: socket, url });
        return;
      }
      case 'adopt':
        await required().listen({ fd: listeningFd, url: question.input.url });
        announceListening(question.input.url);
        keepStreamsYoung();
        return;
      case 'record':
        await required().recordCity(question.input);
        return;
      default:
        // Its doors are closed when this returns; what it still does is waited for by its end.
        void leave(question.input.lingerMs);
    }
  }

  function required(): Gateway {
    if (gateway === undefined) throw new Error('The gateway has not been started yet.');
    return gateway;
  }

  let leaving: Promise<void> | undefined;
  function leave(lingerMs: number): Promise<void> {
    leaving ??= (async () => {
      try {
        await gateway?.close({ lingerMs });
        ended.resolve(0);
      } catch (error) {
        ended.reject(error);
      }
    })();
    return leaving;
  }

  process.on('message', (question: Question) => {
    const reply = (result: Answer): void => void process.send?.(result, undefined, {}, () => undefined);
    answer(question).then(
      () => reply({ id: question.id, ok: true }),
      (error: unknown) =>
        reply({
          id: question.id,
          ok: false,
          message: error instanceof Error ? error.message : String(error),
        }),
    );
  });
  // Nobody is left who could hand callers over.
  process.on('disconnect', () => void leave(0));
  // A terminal or a service manager may tell the whole group; the supervisor says when it is time.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});

  const code = await ended.promise;
  if (process.connected) process.disconnect();
  return code;
}
