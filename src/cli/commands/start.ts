// `townhall start`, which is `npm start`: the local edition, a gateway, an agent and its
// console in one process, with a screen that links to the console and shows a call to paste.
import { randomInt } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { createAgent } from '../../agent/compose.ts';
import { readAgentConfig, type AgentConfig } from '../../agent/config.ts';
import { openAgentDatabase } from '../../agent/database.ts';
import { createConsole, readConsoleConfig, type Console, type ConsoleConfig } from '../../console/index.ts';
import { openProject } from '../../deploy/index.ts';
import { createGateway, localLoginNotice } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import {
  gatewaySettings,
  readGatewayConfig,
  requireStorage,
  type GatewayConfig,
} from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { closeOnError, closeOnFailure, createClosers, type Closers } from '../../kernel/closers.ts';
import { errorCode } from '../../kernel/file-errors.ts';
import { makeFolder } from '../../kernel/folder.ts';
import { isLoopbackHost } from '../../kernel/http/address.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { createRecentLines, type RecentLines } from '../../kernel/recent-lines.ts';
import type { Redactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import { action, type ActionCall, type Command } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { version } from '../command-line/version.ts';
import {
  agentAddresses,
  consoleAddress,
  explainListenErrors,
  gatewayAddresses,
  requireAddresses,
} from '../servers/addresses.ts';
import { hasEnterKey, listenForEnter } from '../servers/enter-key.ts';
import { limitStreamGarbage, saveMemoryWhileIdle } from '../servers/heap.ts';
import { portalBuild, type PortalBuild } from '../servers/portal-build.ts';
import { createProgressLine, type ProgressLine } from '../servers/progress-line.ts';
import { untilStopped } from '../servers/until-stopped.ts';
import { runWatched, watchOption } from '../servers/watch.ts';
import { consoleRow, welcome, type Welcome } from '../servers/welcome.ts';

export const command: Command = {
  description: [
    'Runs a gateway on the embedded database, an agent that works through it, and the console of the agent.',
    'It listens on this machine only unless HOST names another address. The agent takes its settings from AGENT_… in',
    'the environment and the console from CONSOLE_…; see townhall agent --help and townhall console --help.',
  ],
  actions: [
    action({
      settings: { table: gatewaySettings },
      options: {
        plugin: {
          kind: 'value',
          placeholder: 'FILE',
          isRepeatable: true,
          summary: 'Load a plugin into the agent. AGENT_PLUGINS does the same.',
        },
        watch: watchOption,
      },
      async run({ options, settings, env, print, output }) {
        if (options.watch) return runWatched();
        const plugins = options.plugin === undefined ? {} : { AGENT_PLUGINS: options.plugin };
        return startLocalEdition({ settings, env: { ...env, ...plugins }, print, output });
      },
    }),
  ],
};

interface LocalEdition {
  config: GatewayConfig;
  agentConfig: AgentConfig;
  consoleConfig: ConsoleConfig;
  /** Whether the settings name the console's port; only the default port may be replaced by a free one. */
  hasConsolePort: boolean;
  /** The environment with the defaults of the local edition. */
  env: Readonly<Record<string, string | undefined>>;
  /** The agent's user token for the gateway. */
  tokenFile: string;
}

/** The state of a start, which its steps share. */
interface Start extends LocalEdition {
  log: Log;
  redactor: Redactor;
  progress: ProgressLine;
  closers: Closers;
  /** Set once the agent and the console listen; part of how the two servers describe the local edition. */
  urls: { agent: string | undefined; console: string | undefined };
}

async function startLocalEdition({
  settings,
  env: callerEnv,
  print,
  output,
}: Pick<ActionCall, 'settings' | 'env' | 'print' | 'output'>): Promise<number> {
  const edition = readLocalEdition(settings, callerEnv);
  const { agentConfig } = edition;
  await requireStorage(edition.config, systemClock);
  await requireAddresses(addressesOf(edition));

  // The time as the first position: it exceeds the positions of earlier starts, so "townhall logs --follow"
  // goes on after a restart. A thousand for each millisecond is more than a process can log.
  const recentLines = createRecentLines({ firstPosition: systemClock.now().getTime() * 1_000 });
  const start = beginStart(edition, { print, output, recentLines });
  const { log, progress, closers } = start;
  const portal = portalBuild();
  closers.defer(() => portal?.close());
  // The agent's database opens while the gateway starts; each takes about half of the start.
  const openingDatabase = openAgentDatabase(agentConfig, log);
  // createAgent below awaits this promise and throws its failure. Without this handler, a failure before
  // that would be an unhandled rejection, which ends the process.
  openingDatabase.catch(() => {});
  closers.defer(async () => (await openingDatabase.catch(() => undefined))?.close());
  return closeOnError(closers, async () => {
    const gateway = await startGateway(start, { portal, recentLines });
    progress.show('starting the agent');
    const agent = await startAgent(start, { gatewayUrl: gateway.url, openingDatabase });
    limitStreamGarbage();
    saveMemoryWhileIdle();
    const console = await startConsole(start, agent);
    const screen = await createScreen(start, { gateway, agent, console });
    progress.clear();
    return untilStopped(
      () => {
        screen.forEach((line) => print(line));
        listenForEnter(() => print(consoleRow(console.loginUrl())));
      },
      () => {
        process.stdin.pause();
        print('Stopping …');
        return closers.close();
      },
    );
  });
}

/** The addresses that must be free. A default port of the console may be replaced by a free one. */
function addressesOf({ config, agentConfig, consoleConfig, hasConsolePort }: LocalEdition) {
  return [
    ...gatewayAddresses(config),
    ...agentAddresses(agentConfig),
    ...(hasConsolePort ? [consoleAddress(consoleConfig)] : []),
  ];
}

/** Shows the first progress line, and creates what all steps of the start share. */
function beginStart(
  edition: LocalEdition,
  { print, output, recentLines }: Pick<ActionCall, 'print' | 'output'> & { recentLines: RecentLines },
): Start {
  const progress = createProgressLine({ env: edition.env, print, output });
  progress.show(`starting Townhall ${version}`);
  const { log, redactor } = stderrLog({
    level: edition.config.logLevel,
    recent: recentLines,
    beforeLine: progress.clear,
  });
  const closers = createClosers();
  closers.defer(() => progress.clear());
  return { ...edition, log, redactor, progress, closers, urls: { agent: undefined, console: undefined } };
}

interface RunningGateway {
  gateway: Gateway;
  url: string;
}

async function startGateway(
  { config, env, tokenFile, log, redactor, progress, closers, urls }: Start,
  { portal, recentLines }: { portal: PortalBuild | undefined; recentLines: RecentLines },
): Promise<RunningGateway> {
  const project = config.project === undefined ? undefined : await openProject(config.project);
  const gateway = await createGateway(config, {
    project,
    env,
    log,
    redactor,
    clock: systemClock,
    progress: progress.show,
    localEdition: () => ({
      agentUrl: urls.agent,
      consoleUrl: urls.console,
      tokenFile: relative('', tokenFile),
    }),
    buildPortal: portal?.run,
    recentLines,
  });
  closers.defer(() => gateway.close());
  await ensureLocalToken(gateway, tokenFile, log);
  const { url } = await explainListenErrors(gateway.listen(), gatewayAddresses(config));
  return { gateway, url };
}

interface RunningAgent {
  url: string;
  tokenFile: string;
  shell: Welcome['shell'];
}

async function startAgent(
  { config, agentConfig, env, tokenFile, log, redactor, closers, urls }: Start,
  {
    gatewayUrl,
    openingDatabase,
  }: { gatewayUrl: string; openingDatabase: ReturnType<typeof openAgentDatabase> },
): Promise<RunningAgent> {
  const agentEnv = { ...env, AGENT_GATEWAY_URL: gatewayUrl };
  const agent = await createAgent(readAgentConfig({}, agentEnv), {
    log,
    redactor,
    env: agentEnv,
    version,
    opening: openingDatabase,
    hidden: [tokenFile, ...gatewaySecrets(config)],
    localEdition: () => ({
      consoleUrl: urls.console,
      docsUrl: `${gatewayUrl}/docs/`,
      tokenFile: relative('', agentConfig.tokenFile),
    }),
  });
  closers.defer(() => agent.close());
  const { url } = await explainListenErrors(agent.listen(), agentAddresses(agentConfig));
  urls.agent = url;
  return { url, tokenFile: agent.tokenFile, shell: agent.shell };
}

async function startConsole(
  { consoleConfig, hasConsolePort, log, closers, urls }: Start,
  agent: RunningAgent,
): Promise<Console> {
  const { console, url } = await openConsole(
    { ...consoleConfig, agentUrl: agent.url, tokenFile: agent.tokenFile },
    { log, hasOwnPort: hasConsolePort },
  );
  closers.defer(() => console.close());
  urls.console = url;
  return console;
}

/**
 * The last step of a start, since it sets up the first administrator: the password is shown once, so a
 * start that fails must not have set it.
 */
async function createScreen(
  { config, env, tokenFile }: Start,
  {
    gateway: { gateway, url },
    agent,
    console,
  }: { gateway: RunningGateway; agent: RunningAgent; console: Console },
): Promise<string[]> {
  return welcome({
    version,
    gatewayUrl: url,
    agentUrl: agent.url,
    consoleUrl: console.loginUrl(),
    isInteractive: hasEnterKey(),
    userTokenFile: relative('', tokenFile),
    agentTokenFile: relative('', agent.tokenFile),
    program: shownProgram(env),
    administrator: await createFirstAdministrator(gateway),
    shell: agent.shell,
    notice: gateway.hasLocalLogin() && !isLoopbackHost(config.host) ? localLoginNotice : undefined,
  });
}

/** Serves the console at its port, or at any free one when the default port is taken. */
async function openConsole(
  config: ConsoleConfig,
  { log, hasOwnPort }: { log: Log; hasOwnPort: boolean },
): Promise<{ console: Console; url: string }> {
  const openConsoleAt = async (port: number): Promise<{ console: Console; url: string }> => {
    const console = await createConsole({ ...config, port }, { log });
    const { url } = await closeOnFailure(console.listen(), () => console.close());
    return { console, url };
  };
  if (hasOwnPort) return explainListenErrors(openConsoleAt(config.port), [consoleAddress(config)]);
  return openConsoleAt(config.port).catch((error: unknown) => {
    // The console wraps the error of the socket.
    if (!(error instanceof Error) || errorCode(error.cause) !== 'EADDRINUSE') throw error;
    return openConsoleAt(0);
  });
}

// A checkout has no `townhall` on the PATH. npm sets this variable to the name of the script that it runs.
function shownProgram(env: LocalEdition['env']): string {
  return env['npm_lifecycle_event'] === 'start' ? 'npm run townhall --' : 'townhall';
}

function readLocalEdition(flags: ActionCall['settings'], callerEnv: ActionCall['env']): LocalEdition {
  // A first start is on someone's own machine, so no other machine reaches it by
  // default, and only warnings are logged.
  const env: LocalEdition['env'] = { LOG_LEVEL: 'warn', HOST: '127.0.0.1', ...callerEnv };
  const config = readGatewayConfig(flags, env);
  if (config.databaseUrl !== undefined)
    throw new SettingError(
      'this is the local edition; with DATABASE_URL run "townhall gateway" and "townhall agent".',
    );
  const dataFolder = dirname(config.databasePath);
  const tokenFile = join(dataFolder, 'local.token');
  // The console serves the agent that is started here.
  const { TOWNHALL_AGENT_URL: _agentUrl, ...consoleEnv } = env;
  const consoleConfig = readConsoleConfig({}, consoleEnv);
  const agentEnv = {
    AGENT_DATA_DIR: join(dataFolder, 'agent'),
    AGENT_GATEWAY_TOKEN_FILE: tokenFile,
    ...env,
  };
  return {
    config,
    consoleConfig,
    hasConsolePort: env['CONSOLE_PORT'] !== undefined,
    tokenFile,
    env: agentEnv,
    agentConfig: readAgentConfig({}, agentEnv),
  };
}

/**
 * The gateway's data and keys, hidden from the agent, whose workspace may contain these folders.
 */
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

async function createFirstAdministrator(gateway: Gateway): Promise<Welcome['administrator']> {
  if (await gateway.hasAdministrator()) return undefined;
  const administrator = { adminId: 'admin', password: newPassword() };
  await gateway.setupAdministrator(administrator.adminId, administrator.password);
  return administrator;
}

// Four groups of five from 32 characters are 100 random bits. l, i, o and 0 are left out because
// they are easily confused.
function newPassword(): string {
  const alphabet = 'abcdefghjkmnpqrstuvwxyz123456789';
  const group = (): string => Array.from({ length: 5 }, () => alphabet[randomInt(alphabet.length)]).join('');
  return [group(), group(), group(), group()].join('-');
}

/**
 * Keeps the local user's token from the last start while it is valid. Only its owner can read the file. While
 * the Bureau `local` is paused or archived, the file stays as it is: the start must not fail, because an
 * administrator needs a running server to activate the Bureau again.
 */
async function ensureLocalToken(gateway: Gateway, path: string, log: Log): Promise<void> {
  try {
    const token = (await readFile(path, 'utf8').catch(() => '')).trim();
    if (token !== '' && (await gateway.identify(token)) !== null) return;
    const { userToken } = await gateway.issueLocalToken();
    await makeFolder(dirname(path));
    await writeFile(path, `${userToken}\n`, { mode: 0o600 });
  } catch (error) {
    if (!(error instanceof Problem) || !/^bureau_(?:paused|archived)$/.test(error.code)) throw error;
    log.warn({ code: error.code }, 'the agent cannot call models until the Bureau local is active');
  }
}
