// `townhall agent`: the agent alone, its log as JSON lines on standard output.
import { createAgent } from '../agent/compose.ts';
import { agentSettings, readAgentConfig } from '../agent/config.ts';
import { createLog } from '../kernel/log.ts';
import { createRedactor } from '../kernel/secret.ts';
import { describeSettings } from '../kernel/settings.ts';
import { flagsOf, parseFlags } from './command.ts';
import type { Command } from './command.ts';
import { untilStopped } from './until-stopped.ts';

export const agentCommand: Command = {
  help: () =>
    [
      'Usage: townhall agent [OPTIONS]',
      '',
      'Runs an agent until SIGTERM or Ctrl-C. Once it serves it logs one line {"msg":"listening","url":"…"}.',
      'Its first token lies in the token file; every call needs it. Each option can also be given in the environment.',
      '',
      describeSettings(agentSettings),
    ].join('\n'),
  async run({ arguments: given, env }) {
    const config = readAgentConfig(parseFlags(given, { flags: flagsOf(agentSettings) }).flags, env);
    const redactor = createRedactor();
    const log = createLog({ level: config.logLevel, redactor });
    const agent = await createAgent(config, { log, redactor });
    const { url } = await agent.listen();
    log.info({ url }, 'listening');
    return untilStopped(() => agent.close());
  },
};
