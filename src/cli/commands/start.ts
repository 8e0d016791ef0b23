// `townhall start`, which is `npm start`: the local edition for a newcomer, a gateway and an agent in one process,
// with a screen that shows the tokens and the calls to paste.
import { randomInt } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createAgent } from '../../agent/compose.ts';
import { readAgentConfig } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/data/index.ts';
import { openProject } from '../../deploy/index.ts';
import { createGateway, localLoginNotice } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import {
  gatewaySettings,
  readGatewayConfig,
  requireFolders,
  type GatewayConfig,
} from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { closedOnError, createClosers } from '../../kernel/closers.ts';
import { makeFolder } from '../../kernel/folder.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError, describeSettings } from '../../kernel/settings.ts';
import { flagsOf, parseFlagsAlone } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { keepStreamsYoung } from '../servers/heap.ts';
import { agentAddresses, gatewayAddresses, opened, requireAddresses } from '../servers/addresses.ts';
import { untilStopped } from '../servers/until-stopped.ts';
import { version } from '../command-line/version.ts';
import { welcome } from '../servers/welcome.ts';

export const startCommand: Command = {
  help: () =>
    [
      'Usage: townhall start [OPTIONS]',
      '',
      'Runs a gateway on the embedded database and an agent that works through it, and shows calls to paste.',
      'The agent takes its settings from AGENT_… in the environment; see townhall agent --help.',
      '',
      describeSettings(gatewaySettings),
    ].join('\n'),
  async run(input) {
    const flags = parseFlagsAlone(input.arguments, { flags: flagsOf(gatewaySettings) });
    // A newcomer reads the screen, so only what went wrong is logged unless asked otherwise.
    const env = { LOG_LEVEL: 'warn', ...input.env };
    const config = readGatewayConfig(flags, env);
    if (config.databaseUrl !== undefined) {
      throw new SettingError(
        'this is the local edition; with DATABASE_URL run "townhall gateway" and "townhall agent".',
      );
    }
    const redactor = createRedactor();
    const log = createLog({
      level: config.logLevel,
      redactor,
      write: (line) => void process.stderr.write(line),
    });
    const dataFolder = dirname(config.databasePath);
    const tokenFile = join(dataFolder, 'local.token');
    const agentEnv = {
      AGENT_DATA_DIR: join(dataFolder, 'agent'),
      AGENT_GATEWAY_TOKEN_FILE: tokenFile,
      ...env,
    };
    const agentConfig = readAgentConfig({}, agentEnv);
    await requireFolders(config);
    await requireAddresses([...gatewayAddresses(config), ...agentAddresses(agentConfig)]);

    input.print(`Townhall ${version}, local edition`);
    const progress = (step: string): void => input.print(`  ${step} …`);
    // As the agent's own command does: its database is opened while the gateway is put together.
    const closers = createClosers();
    const opening = openAgentDatabase(agentConfig, log);
    // The agent's start below throws it; until then a rejection must not end the process.
    opening.catch(() => {});
    closers.defer(async () => (await opening.catch(() => undefined))?.close());
    return closedOnError(closers, async () => {
      const project = config.project === undefined ? undefined : await openProject(config.project);
      const gateway = await createGateway(config, {
        project,
        env,
        log,
        redactor,
        clock: systemClock,
        progress,
      });
      closers.defer(() => gateway.close());
      const userToken = await localToken(gateway, tokenFile);
      const { url: gatewayUrl } = await opened(gateway.listen(), (port) =>
        port !== undefined && port === config.metricsPort ? 'METRICS_PORT' : 'PORT',
      );
      progress('starting the agent');
      const wholeEnv = { ...agentEnv, AGENT_GATEWAY_URL: gatewayUrl };
      const agent = await createAgent(readAgentConfig({}, wholeEnv), {
        log,
        redactor,
        env: wholeEnv,
        version,
        opening,
        hidden: [tokenFile, ...gatewaySecrets(config)],
      });
      closers.defer(() => agent.close());
      const { url: agentUrl } = await opened(agent.listen(), (port) =>
        port !== undefined && port === agentConfig.metricsPort ? 'AGENT_METRICS_PORT' : 'AGENT_PORT',
      );
      keepStreamsYoung();
      const agentToken = (await readFile(agent.tokenFile, 'utf8')).trim();
      // Last: a password that is shown once must not be made by a start that comes to nothing.
      const administrator = await firstAdministrator(gateway);
      const screen = welcome({
        gatewayUrl,
        agentUrl,
        userToken,
        agentToken,
        administrator,
        notice: gateway.hasLocalLogin() ? localLoginNotice : undefined,
      });
      return untilStopped(
        () => screen.forEach((line) => input.print(line)),
        () => {
          input.print('Stopping …');
          return closers.close();
        },
      );
    });
  },
};

/** Where the gateway keeps its data and keys. The agent runs beside it, and its workspace may contain these folders. */
function gatewaySecrets({
  databasePath,
  storagePath,
  journalPath,
  masterKeyFile,
  masterKeyPreviousFile,
}: GatewayConfig): string[] {
  return [databasePath, storagePath, journalPath, masterKeyFile, masterKeyPreviousFile].filter(
    (path) => path !== undefined,
  );
}

async function firstAdministrator(
  gateway: Gateway,
): Promise<{ adminId: string; password: string } | undefined> {
  if (await gateway.hasAdministrator()) return undefined;
  const administrator = { adminId: 'admin', password: newPassword() };
  await gateway.setupAdministrator(administrator.adminId, administrator.password);
  return administrator;
}

// Four groups of five from 32 characters are 100 random bits; no character looks like another.
function newPassword(): string {
  const alphabet = 'abcdefghjkmnpqrstuvwxyz123456789';
  const group = (): string => Array.from({ length: 5 }, () => alphabet[randomInt(alphabet.length)]).join('');
  return [group(), group(), group(), group()].join('-');
}

/** The local user's token of the last start while it is still good, else a new one; kept in a file for its owner alone. */
async function localToken(gateway: Gateway, path: string): Promise<string> {
  const kept = await readFile(path, 'utf8').catch(() => '');
  const token = kept.trim();
  if (token !== '' && (await gateway.identify(token)) !== null) return token;
  const { userToken } = await gateway.issueLocalToken();
  await makeFolder(dirname(path));
  await writeFile(path, `${userToken}\n`, { mode: 0o600 });
  return userToken;
}
