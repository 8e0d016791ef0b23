// Makes one agent: the only place where its rooms meet. The order is the rule: data and lock, then the token, then
// what a crash has left, and only then a socket that somebody could reach.
import { realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { readText, assetPath } from '../kernel/assets.ts';
import { systemClock, type Clock } from '../kernel/clock.ts';
import { closedOnError, createClosers, type Closers } from '../kernel/closers.ts';
import { createContract } from '../kernel/contract/contract.ts';
import { migrate, type Database } from '../kernel/data/database.ts';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { makeFolder } from '../kernel/folder.ts';
import type { Log } from '../kernel/log.ts';
import { SettingError } from '../kernel/settings.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import { createServer, type Server, type ServerOptions } from '../kernel/http/server.ts';
import { openTelemetry } from '../kernel/telemetry/telemetry.ts';
import { showDatabase } from '../kernel/telemetry/database-metrics.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import type { AgentConfig } from './config.ts';
import { openAgentDatabase } from './database.ts';
import { openControl } from './control.ts';
import { gatewayAccess } from './gateway.ts';
import type { Identity } from './identity.ts';
import { openHands } from './extensions.ts';
import { isWithin, isWithinDatabase, openWorkspace, type Plugin, type Workspace } from './plugins/index.ts';
import { createChat, createSessions, preloadModelLoop, type Chat, type Sessions } from './sessions/index.ts';
import { status } from './status.ts';
import { openTokens, tokenStore } from './tokens/index.ts';

export interface AgentNeeds {
  log: Log;
  /** Learns the tokens that must not appear in the log. */
  redactor: Redactor;
  clock?: Clock;
  /** The environment of the process: what programs are given of it is where programs lie, the home and the language. */
  env?: Readonly<Record<string, string | undefined>>;
  /** Files and folders beside the agent's own that its tools never open, such as the data of a gateway in this process. */
  hidden?: readonly string[];
  /** Beside those built in. */
  plugins?: readonly Plugin[];
  /** Whether standard output is the log: lines that plugins print there become lines of it. */
  logsPrints?: boolean;
  /** An open database instead of the config's own; whoever opened it closes it, after the agent. */
  database?: Database;
  /** Its own database on its way, opened before all this was loaded; it is closed with the agent. */
  opening?: Promise<Database>;
  timeouts?: ServerOptions['timeouts'];
  /** Of the installation, as traces name it. */
  version?: string;
  /** Holds every answer against the contract; for tests. */
  validateResponses?: boolean;
}

export interface Agent {
  /** Known once it listens. The file holds the first token. */
  tokenFile: string;
  listen(): Promise<{ url: string; port: number }>;
  /** Takes no more work, lets what runs end, settles the rest, closes the data. */
  close(): Promise<void>;
}

/**
 * Opens the data and settles what a crash has left; nothing listens yet. Throws, with everything closed again, when the
 * data folder is taken, the token file cannot be used, a plugin is not sound, or contract and handlers do not agree.
 */
export async function createAgent(config: AgentConfig, needs: AgentNeeds): Promise<Agent> {
  const { log, clock = systemClock } = needs;
  // It takes a while, and the database does too.
  void preloadModelLoop();
  const database = needs.database ?? (await (needs.opening ?? openAgentDatabase(config, log)));
  const closers = createClosers();
  if (needs.database === undefined) closers.defer(() => database.close());
  return closedOnError(closers, () => assemble(config, needs, { database, clock, closers }));
}

async function assemble(
  config: AgentConfig,
  needs: AgentNeeds,
  { database, clock, closers }: { database: Database; clock: Clock; closers: Closers },
): Promise<Agent> {
  const { log, redactor } = needs;
  let room: Sessions | undefined;
  let chat: Chat | undefined;
  await migrate(database, { schema: 'agent', directory: assetPath('src/agent/migrations'), log });
  const tokens = await openTokens({
    store: tokenStore(database),
    name: config.name,
    tokenFile: config.tokenFile,
    redactor,
    clock,
    log,
  });
  const workspace = await settleWorkspace(config, needs.hidden ?? []);
  const hands = await openHands({
    config,
    database,
    agentId: tokens.agentId,
    async execute(instructions) {
      const { inputs } = made(room);
      const { receipt } = await inputs.submit({
        to: 'own',
        origin: 'service',
        parts: [{ type: 'text', text: instructions }],
      });
      return receipt;
    },
    chat: () => made(chat),
    workspace,
    env: needs.env ?? process.env,
    plugins: needs.plugins ?? [],
    logsPrints: needs.logsPrints ?? false,
    redactor,
    fetch: (input, init) => fetch(input, init),
    clock,
    log,
  });
  closers.defer(() => hands.close());
  const { registry } = hands;
  const observed = telemetrySettings(config);
  for (const secret of telemetrySecrets(observed)) redactor.hold(secret);
  const telemetry = await openTelemetry({
    settings: observed,
    surface: 'agent',
    version: needs.version ?? 'unknown',
    hide: (text) => redactor.hide(text),
    clock,
    log,
  });
  closers.defer(() => telemetry.close());
  showDatabase(telemetry.metrics, database);
  const gateway = gatewayAccess({ url: config.gatewayUrl, token: config.gatewayToken, redactor, clock });
  room = await createSessions({
    database,
    agentId: tokens.agentId,
    name: config.name,
    dataDir: config.dataDir,
    workspace: workspace.root,
    registry,
    defaultModel: config.model,
    model: (modelId, settings) => gateway.model(modelId, settings),
    contextTokens: (modelId) => gateway.contextTokens(modelId),
    limits: config,
    clock,
    log,
    traces: telemetry.traces,
  });
  const { runs } = room;
  closers.defer(() => runs.close(0));
  chat = createChat({ agentId: tokens.agentId, inputs: room.inputs, store: room.store });
  let isDraining = false;
  const statusRoom = status({ name: config.name, clock, isDraining: () => isDraining });
  const sessionsRoom = room.service(chat);
  const contract = createContract<Identity>({
    definition: await readContract(config.variant),
    handlers: { ...statusRoom.handlers, ...sessionsRoom.handlers, ...hands.handlers },
    identities: { agentToken: 'agent' },
    identify: (bearer) => tokens.identify(bearer),
    guest: { kind: 'guest' },
    ...(needs.validateResponses ? { validateResponses: true } : {}),
  });
  const server = createServer({
    contract,
    surface: 'agent',
    guard: loopbackGuard({ allowHosts: config.allowHost, allowOrigins: config.allowOrigin }),
    ...(config.allowOrigin.length > 0 ? { cors: { origins: config.allowOrigin } } : {}),
    log,
    clock,
    observer: telemetry.observer,
    ...(needs.timeouts ? { timeouts: needs.timeouts } : {}),
  });
  await hands.start();
  await runs.recover();
  const control = await openControl({
    dataDir: config.dataDir,
    database,
    tokens: tokens.desk,
    core: hands.core,
    log,
  });
  closers.defer(() => control?.close());

  let closing: Promise<void> | undefined;
  return {
    tokenFile: config.tokenFile,
    async listen() {
      await telemetry.listen();
      return server.listen({ host: config.host, port: config.port });
    },
    close() {
      isDraining = true;
      closing ??= end({ server, runs, drainMs: config.drainMs, closers });
      return closing;
    },
  };
}

// Plugins and services are opened before what they call later.
function made<T>(part: T | undefined): T {
  if (part === undefined)
    throw new Error('A plugin or a service has called before the agent was put together.');
  return part;
}

// Runs end a little before the server's drain does, so that their callers still get the answer.
async function end({
  server,
  runs,
  drainMs,
  closers,
}: {
  server: Server;
  runs: Sessions['runs'];
  drainMs: number;
  closers: Closers;
}): Promise<void> {
  try {
    await Promise.all([server.close({ drainMs }), runs.close(Math.max(0, drainMs - 1_000))]);
  } finally {
    await closers.close();
  }
}

// The agent's data holds its tokens and its log, so no tool may see them: not where the workspace holds the data
// folder, and a workspace within the data folder is the one folder that was made for it. The file that configures
// plugins holds tokens of MCP servers.
async function settleWorkspace(config: AgentConfig, hidden: readonly string[]): Promise<Workspace> {
  if (config.isDefaultWorkspace) await makeFolder(config.workspace);
  const folder = await realpath(config.workspace).catch((cause: unknown) => {
    throw new SettingError(
      `The workspace ${config.workspace} is not there. Make the folder or give another one with --workspace.`,
      { cause },
    );
  });
  const data = await realpath(config.dataDir);
  if (isWithin(folder, data) && !isWithin(folder, join(data, 'workspace'))) {
    throw new SettingError(
      `The workspace ${config.workspace} is part of the data folder, which holds the agent's tokens; give another one with --workspace.`,
    );
  }
  if (!config.isDefaultWorkspace) await requireNoSecretFolder(config.workspace, folder, hidden);
  const files = [
    config.tokenFile,
    config.pluginConfig,
    'file' in config.gatewayToken ? config.gatewayToken.file : undefined,
  ].filter((file) => file !== undefined);
  return openWorkspace({ folder, hidden: [data, ...files, ...hidden].map((path) => resolve(path)) });
}

async function requireNoSecretFolder(
  workspace: string,
  folder: string,
  hidden: readonly string[],
): Promise<void> {
  const places = await Promise.all(hidden.map((path) => realpath(path).catch(() => resolve(path))));
  if (places.some((place) => isWithin(folder, place)) || (await isWithinDatabase(folder))) {
    throw new SettingError(
      `The workspace ${workspace} is part of a gateway's or a database's own folder; give another one with --workspace.`,
    );
  }
}

async function readContract(variant: AgentConfig['variant']): Promise<object> {
  const folder = variant === 'classic' ? 'agent-classic' : 'agent';
  const text = await readText(assetPath(`src/contract/${folder}/bundle.json`));
  return JSON.parse(text) as object;
}
