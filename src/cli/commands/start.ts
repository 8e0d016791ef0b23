// `townhall start`, which is `npm start`: the local edition, a gateway and an agent in one process, with a screen that
// shows the tokens and the calls to paste.
import { randomInt } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createAgent } from '../../agent/compose.ts';
import { readAgentConfig } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/database.ts';
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
import { SettingError } from '../../kernel/settings.ts';
import { action, type ActionCall, type Command } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { version } from '../command-line/version.ts';
import {
  agentAddresses,
  explainListenErrors,
  gatewayAddresses,
  requireAddresses,
} from '../servers/addresses.ts';
import { limitStreamGarbage, saveMemoryWhileIdle } from '../servers/heap.ts';
import { untilStopped } from '../servers/until-stopped.ts';
import { welcome, type Welcome } from '../servers/welcome.ts';

export const command: Command = {
  description: [
    'Runs a gateway on the embedded database and an agent that works through it, and shows calls to paste.',
    'The agent takes its settings from AGENT_… in the environment; see townhall agent --help.',
  ],
  actions: [action({ settings: { table: gatewaySettings }, run: startLocalEdition })],
};

interface LocalEdition {
  config: GatewayConfig;
  /** With the defaults of the local edition. */
  env: Readonly<Record<string, string | undefined>>;
  /** The user token that the agent works with. */
  tokenFile: string;
}

async function startLocalEdition({ settings, env: givenEnv, print }: ActionCall): Promise<number> {
  const { config, env, tokenFile } = readLocalEdition(settings, givenEnv);
  const agentConfig = readAgentConfig({}, env);
  await requireFolders(config);
  const addresses = { gateway: gatewayAddresses(config), agent: agentAddresses(agentConfig) };
  await requireAddresses([...addresses.gateway, ...addresses.agent]);

  print(`Townhall ${version}, local edition`);
  const progress = (step: string): void => print(`  ${step} …`);
  const { log, redactor } = stderrLog({ level: config.logLevel });
  const closers = createClosers();
  // The agent's database opens while the gateway is put together; each takes about half of the start.
  const opening = openAgentDatabase(agentConfig, log);
  // createAgent below throws a failure of it; until then an unhandled rejection would end the process.
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
    const { url: gatewayUrl } = await explainListenErrors(gateway.listen(), addresses.gateway);
    progress('starting the agent');
    const agentEnv = { ...env, AGENT_GATEWAY_URL: gatewayUrl };
    const agent = await createAgent(readAgentConfig({}, agentEnv), {
      log,
      redactor,
      env: agentEnv,
      version,
      opening,
      hidden: [tokenFile, ...gatewaySecrets(config)],
    });
    closers.defer(() => agent.close());
    const { url: agentUrl } = await explainListenErrors(agent.listen(), addresses.agent);
    limitStreamGarbage();
    saveMemoryWhileIdle();
    const agentToken = (await readFile(agent.tokenFile, 'utf8')).trim();
    const screen = welcome({
      gatewayUrl,
      agentUrl,
      userToken,
      agentToken,
      // Last of all: the password is shown once, so a start that fails must not have set it.
      administrator: await firstAdministrator(gateway),
      notice: gateway.hasLocalLogin() ? localLoginNotice : undefined,
    });
    return untilStopped(
      () => screen.forEach((line) => print(line)),
      () => {
        print('Stopping …');
        return closers.close();
      },
    );
  });
}

function readLocalEdition(flags: ActionCall['settings'], givenEnv: ActionCall['env']): LocalEdition {
  // The screen is for a newcomer to read, so only warnings are logged by default.
  const env = { LOG_LEVEL: 'warn', ...givenEnv };
  const config = readGatewayConfig(flags, env);
  if (config.databaseUrl !== undefined)
    throw new SettingError(
      'this is the local edition; with DATABASE_URL run "townhall gateway" and "townhall agent".',
    );
  const dataFolder = dirname(config.databasePath);
  const tokenFile = join(dataFolder, 'local.token');
  return {
    config,
    tokenFile,
    env: { AGENT_DATA_DIR: join(dataFolder, 'agent'), AGENT_GATEWAY_TOKEN_FILE: tokenFile, ...env },
  };
}

/** The gateway's data and keys. They are hidden from the agent, whose workspace may contain these folders. */
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

async function firstAdministrator(gateway: Gateway): Promise<Welcome['administrator']> {
  if (await gateway.hasAdministrator()) return undefined;
  const administrator = { adminId: 'admin', password: newPassword() };
  await gateway.setupAdministrator(administrator.adminId, administrator.password);
  return administrator;
}

// Four groups of five from 32 characters are 100 random bits. l, i, o and 0 are left out: they look like others.
function newPassword(): string {
  const alphabet = 'abcdefghjkmnpqrstuvwxyz123456789';
  const group = (): string => Array.from({ length: 5 }, () => alphabet[randomInt(alphabet.length)]).join('');
  return [group(), group(), group(), group()].join('-');
}

/** The local user's token of the last start while it is valid, else a new one; the file is readable by its owner only. */
async function localToken(gateway: Gateway, path: string): Promise<string> {
  const token = (await readFile(path, 'utf8').catch(() => '')).trim();
  if (token !== '' && (await gateway.identify(token)) !== null) return token;
  const { userToken } = await gateway.issueLocalToken();
  await makeFolder(dirname(path));
  await writeFile(path, `${userToken}\n`, { mode: 0o600 });
  return userToken;
}
