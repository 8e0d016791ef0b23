// `townhall gateway`: the gateway alone, its log as JSON lines on standard output.
import { createGateway } from '../gateway/compose.ts';
import { gatewaySettings, readGatewayConfig } from '../gateway/config.ts';
import { systemClock } from '../kernel/clock.ts';
import { createLog } from '../kernel/log.ts';
import { createRedactor } from '../kernel/secret.ts';
import { describeSettings } from '../kernel/settings.ts';
import { flagsOf, parseFlags } from './command.ts';
import type { Command } from './command.ts';
import { announceListening } from './announce.ts';
import { untilStopped } from './until-stopped.ts';

export const gatewayCommand: Command = {
  help: () =>
    [
      'Usage: townhall gateway [OPTIONS]',
      '',
      'Runs the gateway until SIGTERM or Ctrl-C. Once it serves it logs one line {"msg":"listening","url":"…"}.',
      'Each option can also be given in the environment; what has no flag only there.',
      '',
      describeSettings(gatewaySettings),
    ].join('\n'),
  async run({ arguments: given, env }) {
    const config = readGatewayConfig(parseFlags(given, { flags: flagsOf(gatewaySettings) }).flags, env);
    const redactor = createRedactor();
    const log = createLog({ level: config.logLevel, redactor });
    const gateway = await createGateway(config, { env, log, redactor, clock: systemClock });
    const { url } = await gateway.listen();
    announceListening(url);
    return untilStopped(() => gateway.close());
  },
};
