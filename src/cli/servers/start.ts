// `townhall start`, which is `npm start`: the local edition for a newcomer, a gateway and an agent in one process,
// with a screen that shows the tokens and the calls to paste.
import { randomInt } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createAgent } from '../../agent/compose.ts';
import type { Agent } from '../../agent/compose.ts';
import { readAgentConfig, readAgentData } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/data/index.ts';
import { openProject } from '../../deploy/index.ts';
import { createGateway, openLoginNotice } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import { gatewaySettings, readGatewayConfig, type GatewayConfig } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { createLog } from '../../kernel/log.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError, describeSettings } from '../../kernel/settings.ts';
import { flagsOf, parseFlagsAlone } from '../command.ts';
import type { Command, CommandInput } from '../command.ts';
import { keepStreamsYoung } from './heap.ts';
import { opened } from './opened.ts';
import { untilStopped } from './until-stopped.ts';
import { version } from '../version.ts';
import { welcome } from './welcome.ts';

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
      throw new SettingError('this is the local edition; with DATABASE_URL run "townhall gateway" and "townhall agent".');
    }
    const redactor = createRedactor();
    const log = createLog({ level: config.logLevel, redactor, write: (line) => void process.stderr.write(line) });
    const dataFolder = dirname(config.databasePath);
    const tokenFile = join(dataFolder, 'local.token');

    input.print(`Townhall ${version}, local edition`);
    const progress = (step: string): void => input.print(`  ${step} …`);
    // As the agent's own command does: its database is opened while the gateway is put together.
    const agentEnv = { AGENT_DATA_DIR: join(dataFolder, 'agent'), AGENT_GATEWAY_TOKEN_FILE: tokenFile, ...env };
    const opening = openAgentDatabase(readAgentData({}, agentEnv), log);
    opening.catch(() => {});
    let gateway: Gateway | undefined;
    let agent: Agent | undefined;
    try {
      const project = config.project === undefined ? undefined : await openProject(config.project);
      gateway = await createGateway(config, { project, env, log, redactor, clock: systemClock, progress });
      const userToken = await localToken(gateway, tokenFile);
      const { url: gatewayUrl } = await opened(gateway.listen(), (port) => (port !== undefined && port === config.metricsPort ? 'METRICS_PORT' : 'PORT'));
      progress('starting the agent');
      const wholeEnv = { ...agentEnv, AGENT_GATEWAY_URL: gatewayUrl };
      agent = await createAgent(readAgentConfig({}, wholeEnv), { log, redactor, env: wholeEnv, version, opening, hidden: [tokenFile, ...gatewaySecrets(config)] });
      const { url: agentUrl } = await opened(agent.listen(), () => 'AGENT_PORT');
      keepStreamsYoung();
      const agentToken = (await readFile(agent.tokenFile, 'utf8')).trim();
      // Last: a password that is shown once must not be made by a start that comes to nothing.
      const administrator = await firstAdministrator(gateway);
      const screen = welcome({ gatewayUrl, agentUrl, userToken, agentToken, administrator, notice: gateway.hasLocalLogin() ? openLoginNotice : undefined });
      return await untilStopped(() => screen.forEach((line) => input.print(line)), () => stop(input, gateway as Gateway, agent));
    } catch (error) {
      await agent?.close();
      await gateway?.close();
      await (await opening.catch(() => undefined))?.close();
      throw error;
    }
  },
};

/** Where the gateway keeps its data and keys. The agent runs beside it, and its workspace may contain these folders. */
function gatewaySecrets({ databasePath, storagePath, journalPath, masterKeyFile, masterKeyPreviousFile }: GatewayConfig): string[] {
  return [databasePath, storagePath, journalPath, masterKeyFile, masterKeyPreviousFile].filter((path) => path !== undefined);
}

async function stop(input: CommandInput, gateway: Gateway, agent: Agent | undefined): Promise<void> {
  input.print('Stopping …');
  await agent?.close();
  await gateway.close();
}

async function firstAdministrator(gateway: Gateway): Promise<{ adminId: string; password: string } | undefined> {
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
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeFile(path, `${userToken}\n`, { mode: 0o600 });
  return userToken;
}
