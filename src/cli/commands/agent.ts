// `townhall agent`: runs the agent alone, with its log as JSON lines on standard output.
import { agentSettings, readAgentConfig } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/database.ts';
import { closeOnFailure } from '../../kernel/closers.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { action, type Command } from '../command-line/command.ts';
import { version } from '../command-line/version.ts';
import { agentDataActions } from '../data/agent-tokens.ts';
import { agentAddresses, explainListenErrors, requireAddresses } from '../servers/addresses.ts';
import { announceListening } from '../servers/announce.ts';
import { limitYoungGeneration, saveMemoryWhileIdle } from '../servers/heap.ts';
import { untilStopped } from '../servers/until-stopped.ts';
import { runWatched, watchOption } from '../servers/watch.ts';

export const command: Command = {
  description: [
    'Runs an agent until SIGTERM or Ctrl-C. Once it is ready it logs one line {"msg":"listening","url":"…"}.',
    'Its first token is in the token file; every call needs a token. Each option can also be set in the environment.',
    'The commands below have the options --data-dir, --database-url and --name of the agent.',
  ],
  actions: [
    action({
      settings: { table: agentSettings },
      options: { watch: watchOption },
      async run({ settings, env, options }) {
        if (options.watch) return runWatched();
        const config = readAgentConfig(settings, env);
        const redactor = createRedactor();
        const log = createLog({ level: config.logLevel, redactor });
        limitYoungGeneration();
        const addresses = agentAddresses(config);
        await requireAddresses(addresses);
        // The database opens while the rest of the agent is loaded: each takes about half of a start.
        const openingDatabase = openAgentDatabase(config, log);
        // createAgent awaits this promise and throws its failure. Without this handler, a failure before
        // that would be an unhandled rejection, which ends the process.
        openingDatabase.catch(() => {});
        const { createAgent } = await import('../../agent/compose.ts');
        const agent = await createAgent(config, {
          log,
          redactor,
          env,
          version,
          opening: openingDatabase,
          logsPrints: true,
        });
        const listening = explainListenErrors(agent.listen(), addresses);
        const { url } = await closeOnFailure(listening, () => agent.close());
        saveMemoryWhileIdle({ growsWhileBusy: false });
        return untilStopped(
          () => announceListening(url),
          () => agent.close(),
        );
      },
    }),
    ...agentDataActions,
  ],
};
