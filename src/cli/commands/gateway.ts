// `townhall gateway`: the gateway alone, its log as JSON lines on standard output.
import { openProject } from '../../deploy/index.ts';
import { createGateway } from '../../gateway/compose.ts';
import { gatewaySettings, readGatewayConfig, requireFolders } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { describeSettings } from '../../kernel/settings.ts';
import { flagsOf, parseFlagsAlone } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { announceListening } from '../servers/announce.ts';
import { keepStreamsYoung } from '../servers/heap.ts';
import { gatewayAddresses, opened, orClosed, requireAddresses } from '../servers/addresses.ts';
import { version } from '../command-line/version.ts';
import { untilStopped } from '../servers/until-stopped.ts';

// Whoever distributes callers over several gateways looks at /ready some times a second, and has looked elsewhere by then;
// what was on its way over an open connection is still answered. New work is refused within a second of the signal.
const parting = { noticeMs: 400, lingerMs: 400 };

export const gatewayCommand: Command = {
  help: () =>
    [
      'Usage: townhall gateway [OPTIONS]',
      '',
      'Runs the gateway until SIGTERM or Ctrl-C. Once it serves it logs one line {"msg":"listening","url":"…"}.',
      'Each option can also be given in the environment; what has no flag only there. So can the keys of model providers,',
      'logins and payments, such as OPENAI_API_KEY; those that an administrator stores win. "townhall models check" tries them.',
      '',
      describeSettings(gatewaySettings),
    ].join('\n'),
  async run({ arguments: given, env }) {
    const config = readGatewayConfig(parseFlagsAlone(given, { flags: flagsOf(gatewaySettings) }), env);
    const redactor = createRedactor();
    const log = createLog({ level: config.logLevel, redactor });
    await requireFolders(config);
    await requireAddresses(gatewayAddresses(config));
    const project = config.project === undefined ? undefined : await openProject(config.project);
    const gateway = await createGateway(config, { env, log, redactor, clock: systemClock, version, project });
    const listening = opened(gateway.listen(), (port) =>
      port !== undefined && port === config.metricsPort ? 'METRICS_PORT' : 'PORT',
    );
    const { url } = await orClosed(listening, () => gateway.close());
    keepStreamsYoung();
    return untilStopped(
      () => announceListening(url),
      () => gateway.close(parting),
    );
  },
};
