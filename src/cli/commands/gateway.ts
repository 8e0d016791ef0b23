// `townhall gateway`: runs the gateway alone, with its log as JSON lines on standard output.
import { openProject } from '../../deploy/index.ts';
import { createGateway } from '../../gateway/compose.ts';
import { gatewaySettings, readGatewayConfig, requireFolders } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { action, type Command } from '../command-line/command.ts';
import { version } from '../command-line/version.ts';
import {
  closingOnFailure,
  explainListenErrors,
  gatewayAddresses,
  requireAddresses,
} from '../servers/addresses.ts';
import { announceListening } from '../servers/announce.ts';
import { limitStreamGarbage } from '../servers/heap.ts';
import { untilStopped } from '../servers/until-stopped.ts';

// A load balancer polls /ready several times a second, so 400 ms of notice let it choose another gateway; requests on
// open connections are still answered for 400 ms. New work is refused within a second of the signal.
const closeOptions = { noticeMs: 400, lingerMs: 400 };

export const command: Command = {
  description: [
    'Runs the gateway until SIGTERM or Ctrl-C. Once it serves it logs one line {"msg":"listening","url":"…"}.',
    'Each option can also be given in the environment, and what has no flag only there. So can the keys of model',
    'providers, logins and payments, such as OPENAI_API_KEY; those that an administrator stores win. "townhall models',
    'check" tries them.',
  ],
  actions: [
    action({
      settings: { table: gatewaySettings },
      async run({ settings, env }) {
        const config = readGatewayConfig(settings, env);
        const redactor = createRedactor();
        const log = createLog({ level: config.logLevel, redactor });
        const addresses = gatewayAddresses(config);
        await requireFolders(config);
        await requireAddresses(addresses);
        const project = config.project === undefined ? undefined : await openProject(config.project);
        const gateway = await createGateway(config, {
          env,
          log,
          redactor,
          clock: systemClock,
          version,
          project,
        });
        const listening = explainListenErrors(gateway.listen(), addresses);
        const { url } = await closingOnFailure(listening, () => gateway.close());
        limitStreamGarbage();
        return untilStopped(
          () => announceListening(url),
          () => gateway.close(closeOptions),
        );
      },
    }),
  ],
};
