// The composition root of the agent: constructs every part in order and defers its close beside it.
// The order is data and lock, token, recovery after a crash, and the socket last.
import { realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { readText, assetPath } from '../kernel/assets.ts';
import { systemClock, type Clock } from '../kernel/clock.ts';
import { closeOnError, createClosers, type Closers } from '../kernel/closers.ts';
import { createContract } from '../kernel/contract/contract.ts';
import { migrate, type Database } from '../kernel/data/database.ts';
import { requireBucket, s3Settings } from '../kernel/storage/s3-settings.ts';
import { createIdempotency, type Idempotency, type IdempotencyOptions } from '../kernel/data/idempotency.ts';
import { makeFolder } from '../kernel/folder.ts';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { createServer, type Server, type ServerOptions } from '../kernel/http/server.ts';
import type { Log } from '../kernel/log.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import { SettingError } from '../kernel/settings.ts';
import { showDatabase } from '../kernel/telemetry/database-metrics.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { openTelemetry } from '../kernel/telemetry/telemetry.ts';
import type { Traces } from '../kernel/telemetry/traces.ts';
import type { AgentConfig } from './config.ts';
import { openControl } from './control.ts';
import { openAgentDatabase } from './database.ts';
import { createExtensions, type Extensions } from './extensions.ts';
import { frontPage, type LocalAgentLinks } from './front-page.ts';
import { gatewayAccess } from './gateway.ts';
import { idempotencyCaller, type Identity } from './identity.ts';
import { childEnvironment } from './processes/index.ts';
import { createPermissions, permissionService, permissionStore } from './permissions/index.ts';
import { isWithin, isWithinDatabase, openWorkspace, type Plugin, type Workspace } from './plugins/index.ts';
import { createChat, createSessions, type Sessions } from './sessions/index.ts';
import { createSnapshots } from './snapshots/index.ts';
import { status, type AgentContract } from './status.ts';
import { openTokens, tokenStore, type Tokens } from './tokens/index.ts';
import { createWorkspaces, type Workspaces } from './workspaces/index.ts';

export interface AgentOptions {
  log: Log;
  /** Receives the tokens that must not appear in the log. */
  redactor: Redactor;
  clock?: Clock;
  /** The environment of the process; child processes get its search path, home and language. */
  env?: Readonly<Record<string, string | undefined>>;
  /**
   * Files and folders, besides the agent's own, that its tools never open, such as the data of a
   * gateway in this process.
   */
  hidden?: readonly string[];
  /** Plugins beside the built-in ones. */
  plugins?: readonly Plugin[];
  /** Whether standard output is the log: then lines that plugins print become lines of it. */
  logsPrints?: boolean;
  /** An open database in place of the config's. Its opener closes it, after the agent. */
  database?: Database;
  /** The agent's own database while it opens; it is closed with the agent. */
  opening?: Promise<Database>;
  timeouts?: ServerOptions['timeouts'];
  /** The links of `/` in the local edition; called at each request. */
  localEdition?: () => LocalAgentLinks;
  /** The version of the installation, as traces name it. */
  version?: string;
  /** Checks every response against the contract; for tests. */
  validateResponses?: boolean;
}

export interface Agent {
  /** The file of the first token; it exists once the agent is created. */
  tokenFile: string;
  /** A warning for the operator at the start; undefined without one. */
  notice: string | undefined;
  listen(): Promise<{ url: string; port: number }>;
  /** Refuses new work, waits up to `drainMs` for runs, settles the rest and closes the data. */
  close(): Promise<void>;
}

interface Base {
  database: Database;
  clock: Clock;
  closers: Closers;
}

/**
 * Opens the data and recovers from a crash; nothing listens yet. Throws, with everything closed,
 * when the data folder is in use, the token file is unusable, a plugin is invalid, or contract and
 * handlers do not agree.
 */
export async function createAgent(config: AgentConfig, options: AgentOptions): Promise<Agent> {
  const { log, clock = systemClock } = options;
  const database = options.database ?? (await (options.opening ?? openAgentDatabase(config, log)));
  const closers = createClosers();
  if (options.database === undefined) closers.defer(() => database.close());
  return closeOnError(closers, () => compose(config, options, { database, clock, closers }));
}

async function compose(
  config: AgentConfig,
  options: AgentOptions,
  { database, clock, closers }: Base,
): Promise<Agent> {
  const { log, redactor } = options;
  const { tokenFile } = config;
  const bucket = s3Settings('AGENT_', config);
  if (bucket !== undefined) {
    redactor.hold(bucket.secret);
    await requireBucket('AGENT_', { ...bucket, clock });
  }
  await migrate(database, { schema: 'agent', directory: assetPath('src/agent/migrations'), log });
  const store = tokenStore(database);
  const tokens = await openTokens({ store, name: config.name, tokenFile, redactor, clock, log });
  const { agentId } = tokens;

  const workspace = await prepareWorkspace(config, options.hidden ?? []);
  const env = childEnvironment(options.env ?? process.env);
  const workspaces: Workspaces = await createWorkspaces({
    shared: workspace,
    dataDir: config.dataDir,
    env,
    sandbox: () => extensions.sandbox,
    clock,
    log,
  });
  const extensions: Extensions = await createExtensions(closers, {
    config,
    database,
    agentId,
    // Plugins and services call these only after `start`, when both constants below are set.
    execute: (instructions) => submitUnattended(sessions, instructions),
    chat: () => chat,
    readOutput: (sessionId, seq) => sessions.readOutput(sessionId, seq),
    workspace,
    workspaceAt: workspaces.at,
    env,
    plugins: options.plugins ?? [],
    logsPrints: options.logsPrints ?? false,
    redactor,
    fetch: (input, init) => fetch(input, init),
    clock,
    log,
  });

  const telemetry = await startTelemetry(config, options, clock);
  closers.defer(() => telemetry.close());
  showDatabase(telemetry.metrics, database);

  const { permissions, sessions, chat } = openSessions(
    config,
    { database, clock, closers },
    { agentId, workspaces, extensions, redactor, log, traces: telemetry.traces },
  );

  const idempotency = await openIdempotency(agentId, { database, clock, log, receiptOf: sessions.receiptOf });
  closers.defer(() => idempotency.close());

  const lifecycle: Lifecycle = { isDraining: false, url: '' };
  const definition = await readContract(config.variant);
  const { name, variant } = config;
  const server = createAgentServer(config, options, {
    definition,
    handlers: {
      ...status({ name, variant, contract: definition, clock, isDraining: () => lifecycle.isDraining })
        .handlers,
      ...sessions.service(chat).handlers,
      ...permissionService({ permissions, sessionKeyOf: sessions.keyOf }).handlers,
      ...extensions.handlers,
    },
    tokens,
    idempotency,
    clock,
    observer: telemetry.observer,
    url: () => lifecycle.url,
  });
  await extensions.start();
  await sessions.runs.recover();

  const control = await openControl({
    dataDir: config.dataDir,
    database,
    tokens: tokens.admin,
    pluginCore: extensions.pluginCore,
    log,
  });
  closers.defer(() => control?.close());

  return {
    tokenFile,
    notice: extensions.notice,
    ...openLifecycle(lifecycle, { config, telemetry, server, runs: sessions.runs, closers }),
  };
}

interface Lifecycle {
  /** Whether the agent is shutting down. */
  isDraining: boolean;
  /** The address of the server; empty until it listens. */
  url: string;
}

/** The start and the end of an agent. A second `close` waits for the first. */
function openLifecycle(
  lifecycle: Lifecycle,
  {
    config,
    telemetry,
    server,
    runs,
    closers,
  }: {
    config: AgentConfig;
    telemetry: { listen(): Promise<unknown> };
    server: Server;
    runs: Sessions['runs'];
    closers: Closers;
  },
): Pick<Agent, 'listen' | 'close'> {
  let closePromise: Promise<void> | undefined;
  return {
    async listen() {
      await telemetry.listen();
      const address = await server.listen({ host: config.host, port: config.port });
      lifecycle.url = address.url;
      return address;
    },
    close() {
      lifecycle.isDraining = true;
      closePromise ??= drain({ server, runs, drainMs: config.drainMs, closers });
      return closePromise;
    },
  };
}

/** Sessions with their models and permissions. */
function openSessions(
  config: AgentConfig,
  { database, clock, closers }: Base,
  {
    agentId,
    workspaces,
    extensions,
    redactor,
    log,
    traces,
  }: Pick<AgentOptions, 'redactor' | 'log'> & {
    agentId: string;
    workspaces: Workspaces;
    extensions: Extensions;
    traces: Traces;
  },
) {
  const gateway = gatewayAccess({ url: config.gatewayUrl, token: config.gatewayToken, redactor, clock });
  const permissions = createPermissions({
    agentId,
    store: permissionStore(database),
    configured: extensions.permissionRules,
    now: () => clock.now(),
  });
  const snapshots = createSnapshots({
    dataDir: config.dataDir,
    database,
    agentId,
    limits: { maxFiles: config.snapshotFiles },
    isShared: database.engine === 'postgres',
    clock,
    log,
  });
  closers.defer(() => snapshots.close());
  const sessions = createSessions({
    database,
    agentId,
    name: config.name,
    dataDir: config.dataDir,
    bucket: s3Settings('AGENT_', config),
    workspaces,
    registry: extensions.registry,
    permissions,
    snapshots,
    defaultModel: config.model,
    model: (modelId, settings) => gateway.model(modelId, settings),
    describeModel: (modelId) => gateway.describe(modelId),
    limits: config,
    clock,
    log,
    traces,
  });
  closers.defer(() => sessions.runs.close(0));
  const chat = createChat({ agentId, inputs: sessions.inputs, store: sessions.store });
  return { permissions, sessions, chat };
}

async function submitUnattended({ inputs }: Sessions, instructions: string): Promise<{ runId: string }> {
  const { receipt } = await inputs.submit({
    to: 'own',
    origin: 'service',
    parts: [{ type: 'text', text: instructions }],
  });
  return receipt;
}

// An agent serves the programs of one person, who repeat a call within minutes. In the
// growth bench the table of 5,500 keys had 10 MB.
const maxKeys = 10_000;
const maxAnswerBytes = 4 * 1024 * 1024;
const keyLeaseMs = 20_000;

async function openIdempotency(
  agentId: string,
  options: Pick<IdempotencyOptions, 'database' | 'clock' | 'log' | 'receiptOf'>,
): Promise<Idempotency> {
  const idempotency = createIdempotency({
    ...options,
    schema: 'agent',
    leaseMs: keyLeaseMs,
    maxKeysPerCaller: maxKeys,
    maxBytesPerCaller: maxAnswerBytes,
  });
  // The embedded database has one process at a time, so calls that are stored as running ended with
  // the process before.
  if (options.database.engine === 'embedded')
    await idempotency.endLeases(idempotencyCaller({ kind: 'agent', agentId, tokenId: '' }) ?? '');
  return idempotency;
}

function startTelemetry(
  config: AgentConfig,
  { version = 'unknown', redactor, log }: AgentOptions,
  clock: Clock,
): ReturnType<typeof openTelemetry> {
  const settings = telemetrySettings(config);
  for (const secret of telemetrySecrets(settings)) redactor.hold(secret);
  return openTelemetry({
    settings,
    surface: 'agent',
    version,
    hide: (text) => redactor.hide(text),
    clock,
    log,
  });
}

function createAgentServer(
  config: AgentConfig,
  { log, timeouts, validateResponses, localEdition }: AgentOptions,
  {
    definition,
    handlers,
    tokens,
    idempotency,
    clock,
    observer,
    url,
  }: {
    definition: AgentContract;
    handlers: Parameters<typeof createContract<Identity>>[0]['handlers'];
    tokens: Tokens;
    idempotency: Idempotency;
    clock: Clock;
    observer: ServerOptions['observer'];
    /** The address of this server, once it listens. */
    url(): string;
  },
): Server {
  const contract = createContract<Identity>({
    definition,
    handlers,
    identities: { agentToken: 'agent' },
    identify: (bearer) => tokens.identify(bearer),
    guest: { kind: 'guest' },
    idempotency,
    callerOf: idempotencyCaller,
    ...(validateResponses ? { validateResponses } : {}),
  });
  return createServer({
    contract,
    surface: 'agent',
    frontPage: () =>
      frontPage({
        name: config.name,
        version: definition.info.version,
        url: url(),
        local: localEdition?.(),
      }),
    guard: loopbackGuard({ allowHosts: config.allowHost, allowOrigins: config.allowOrigin }),
    ...(config.allowOrigin.length > 0 ? { cors: { origins: config.allowOrigin } } : {}),
    log,
    clock,
    observer,
    ...(timeouts ? { timeouts } : {}),
  });
}

// Runs end a second before the server's drain does, so that their callers still get the answer.
async function drain({
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

// The data folder contains tokens and sessions, and the plugin configuration tokens of MCP servers.
// Tools must not read them: they are hidden within a workspace, and a workspace within the data
// folder has to be its own subfolder.
async function prepareWorkspace(config: AgentConfig, hidden: readonly string[]): Promise<Workspace> {
  if (config.isDefaultWorkspace) await makeFolder(config.workspace);
  const folder = await realpath(config.workspace).catch((cause: unknown) => {
    throw new SettingError(
      `The workspace ${config.workspace} does not exist. Create the folder, or set another one with --workspace.`,
      { cause },
    );
  });
  const data = await realpath(config.dataDir);
  if (isWithin(folder, data) && !isWithin(folder, join(data, 'workspace'))) {
    throw new SettingError(
      `The workspace ${config.workspace} is part of the data folder, which holds the agent's tokens; name another one with --workspace.`,
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
  const secretFolders = await Promise.all(hidden.map((path) => realpath(path).catch(() => resolve(path))));
  if (secretFolders.some((secret) => isWithin(folder, secret)) || (await isWithinDatabase(folder))) {
    throw new SettingError(
      `The workspace ${workspace} is part of a gateway's or a database's own folder; name another one with --workspace.`,
    );
  }
}

async function readContract(variant: AgentConfig['variant']): Promise<AgentContract> {
  const folder = variant === 'classic' ? 'agent-classic' : 'agent';
  const text = await readText(assetPath(`src/contract/${folder}/bundle.json`));
  return JSON.parse(text) as AgentContract;
}
