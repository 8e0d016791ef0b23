// `townhall agent`: the agent alone, its log as JSON lines on standard output.
import { agentSettings, readAgentConfig } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/data/index.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { describeSettings } from '../../kernel/settings.ts';
import { flagsOf, parseFlagsAlone } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { agentToolsHelp, runAgentCall, runAgentToken } from '../agent/agent-tokens.ts';
import { announceListening } from '../servers/announce.ts';
import { keepYoungSmall } from '../servers/heap.ts';
import { agentAddresses, opened, orClosed, requireAddresses } from '../servers/addresses.ts';
import { version } from '../command-line/version.ts';
import { untilStopped } from '../servers/until-stopped.ts';

export const agentCommand: Command = {
  help: () =>
    [
      'Usage: townhall agent [OPTIONS]',
      ...agentToolsHelp,
      '',
      'Runs an agent until SIGTERM or Ctrl-C. Once it serves it logs one line {"msg":"listening","url":"…"}.',
      'Its first token lies in the token file; every call needs it. Each option can also be given in the environment.',
      '',
      describeSettings(agentSettings),
    ].join('\n'),
  async run(input) {
    const { arguments: given, env } = input;
    if (given[0] === 'token') return runAgentToken(input);
    if (given[0] === 'call') return runAgentCall(input);
    const flags = parseFlagsAlone(given, { flags: flagsOf(agentSettings), repeatable: ['plugin'] });
    const config = readAgentConfig(flags, env);
    const redactor = createRedactor();
    const log = createLog({ level: config.logLevel, redactor });
    keepYoungSmall();
    await requireAddresses(agentAddresses(config));
    // The database is opened while the rest of the agent is being loaded: each takes about half of a start.
    const opening = openAgentDatabase(config, log);
    opening.catch(() => {});
    const { createAgent } = await import('../../agent/compose.ts');
    const agent = await createAgent(config, { log, redactor, env, version, opening, logsPrints: true });
    const listening = opened(agent.listen(), (port) =>
      port !== undefined && port === config.metricsPort ? 'AGENT_METRICS_PORT' : 'AGENT_PORT',
    );
    const { url } = await orClosed(listening, () => agent.close());
    return untilStopped(
      () => announceListening(url),
      () => agent.close(),
    );
  },
};
