// The composition root of the agent: constructs every part in order and registers how to close it. The
// order: the database with its lock, the token, tools and sessions, the recovery after a crash. The
// agent listens last.
import { readText, assetPath } from '../kernel/assets.ts';
import { systemClock, type Clock } from '../kernel/clock.ts';
import { closeOnError, createClosers, type Closers } from '../kernel/closers.ts';
import { createContract } from '../kernel/contract/contract.ts';
import { migrate, type Database } from '../kernel/data/database.ts';
import { requireBucket, s3Settings } from '../kernel/storage/s3-settings.ts';
import { createIdempotency, type Idempotency, type IdempotencyOptions } from '../kernel/data/idempotency.ts';
import { loopbackGuard } from '../kernel/http/guard.ts';
import { createServer, type Server, type ServerOptions } from '../kernel/http/server.ts';
import type { Log } from '../kernel/log.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import { registerDatabaseMetrics } from '../kernel/telemetry/database-metrics.ts';
import { telemetrySecrets, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import { openTelemetry, type Telemetry } from '../kernel/telemetry/telemetry.ts';
import type { Traces } from '../kernel/telemetry/traces.ts';
import type { AgentConfig } from './config.ts';
import { openControl } from './control.ts';
import { openAgentDatabase } from './database.ts';
import { createExtensions, type Extensions } from './extensions.ts';
import { frontPage, type LocalAgentLinks } from './front-page.ts';
import { gatewayAccess } from './gateway.ts';
import { idempotencyCaller, keyOwner, type Identity } from './identity.ts';
import { childEnvironment } from './processes/index.ts';
import { createPermissions, permissionService, permissionStore } from './permissions/index.ts';
import type { Plugin } from './plugins/index.ts';
import { prepareWorkspace } from './prepare-workspace.ts';
import { createChat, createSessions, type Chat, type Sessions } from './sessions/index.ts';
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
  /** Plugins besides the built-in ones. */
  plugins?: readonly Plugin[];
  /** Whether to log the lines that plugins print; needed where standard output is the log. */
  logsPrints?: boolean;
  /** An open database to use instead of the configured one. The caller closes it, after the agent. */
  database?: Database;
  /** The configured database, if the caller has begun to open it. The agent closes it. */
  opening?: Promise<Database>;
  timeouts?: ServerOptions['timeouts'];
  /** The links of `/` in the local edition; called at each request. */
  localEdition?: () => LocalAgentLinks;
  /** The version of the installation, for traces. */
  version?: string;
  /** Checks every response against the contract; for tests. */
  validateResponses?: boolean;
}

export interface Agent {
  /** The file of the first token; it exists once the agent is created. */
  tokenFile: string;
  /** How the agent runs commands; `off` if it refuses them because no sandbox is available. */
  shell: 'sandboxed' | 'unsafe' | 'off';
  listen(): Promise<{ url: string; port: number }>;
  /** Refuses new work, waits up to `drainMs` for runs, settles the rest and closes the data. */
  close(): Promise<void>;
}

/** What every step of the start uses. */
interface Base {
  config: AgentConfig;
  options: AgentOptions;
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
  return closeOnError(closers, () => compose({ config, options, database, clock, closers }));
}

async function compose(base: Base): Promise<Agent> {
  const { config, options, database, clock, closers } = base;
  const { log, redactor } = options;
  const { name, variant, tokenFile } = config;
  await prepareStorage(base);
  const tokens = await openTokens({ store: tokenStore(database), name, tokenFile, redactor, clock, log });
  const { agentId } = tokens;

  const { workspaces, extensions }: ToolAccess = await openToolAccess(base, {
    agentId,
    // Plugins and services call these only after `start`, when both constants below are set.
    sessions: () => sessions,
    chat: () => chat,
  });
  const telemetry = await startTelemetry(base);
  const { traces, observer } = telemetry;
  const { permissions, sessions, chat } = openSessions(base, { agentId, workspaces, extensions, traces });
  const idempotency = await openIdempotency(base, { agentId, receiptOf: sessions.receiptOf });

  const lifecycle: Lifecycle = { isDraining: false, url: '' };
  const contract = await readContract(variant);
  const isDraining = () => lifecycle.isDraining;
  const server = createAgentServer(base, {
    definition: contract,
    handlers: {
      ...status({ name, variant, contract, clock, isDraining }).handlers,
      ...sessions.service(chat).handlers,
      ...permissionService({ permissions, sessionKeyOf: sessions.keyOf }).handlers,
      ...extensions.handlers,
    },
    tokens,
    idempotency,
    observer,
    url: () => lifecycle.url,
  });
  await extensions.start();
  await sessions.runs.recover();
  await serveCommands(base, tokens, extensions);
  return {
    tokenFile,
    shell: shellOf(extensions.sandbox),
    ...openLifecycle(lifecycle, { config, telemetry, server, runs: sessions.runs, closers }),
  };
}

function shellOf({ isOff, missing }: Extensions['sandbox']): Agent['shell'] {
  if (isOff) return 'unsafe';
  return missing === undefined ? 'sandboxed' : 'off';
}

/** Checks that the bucket of attachments answers, and migrates the database. */
async function prepareStorage({ config, options: { redactor, log }, database, clock }: Base): Promise<void> {
  const bucket = s3Settings('AGENT_', config);
  if (bucket !== undefined) {
    redactor.hold(bucket.secret);
    await requireBucket('AGENT_', { ...bucket, clock });
  }
  await migrate(database, { schema: 'agent', directory: assetPath('src/agent/migrations'), log });
}

interface Lifecycle {
  /** Whether the agent is shutting down. */
  isDraining: boolean;
  /** The address of the server; empty until it listens. */
  url: string;
}

interface LifecycleParts {
  config: AgentConfig;
  telemetry: { listen(): Promise<unknown> };
  server: Server;
  runs: Sessions['runs'];
  closers: Closers;
}

/** How the agent begins to listen, and closes. A second `close` waits for the first. */
function openLifecycle(lifecycle: Lifecycle, parts: LifecycleParts): Pick<Agent, 'listen' | 'close'> {
  const { config, telemetry, server } = parts;
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
      closePromise ??= drain(parts);
      return closePromise;
    },
  };
}

/** Opens the control socket for commands on this machine. */
async function serveCommands(
  { config: { dataDir }, options: { log }, database, closers }: Base,
  { admin }: Tokens,
  { pluginCore }: Extensions,
): Promise<void> {
  const control = await openControl({ dataDir, database, tokens: admin, pluginCore, log });
  closers.defer(() => control?.close());
}

interface ToolAccess {
  workspaces: Workspaces;
  extensions: Extensions;
}

/** The workspaces, and the plugins and services that work in them. */
async function openToolAccess(
  { config, options, database, clock, closers }: Base,
  { agentId, sessions, chat }: { agentId: string; sessions(): Sessions; chat(): Chat },
): Promise<ToolAccess> {
  const { plugins = [], logsPrints = false, hidden = [], redactor, log } = options;
  const workspace = await prepareWorkspace(config, hidden);
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
    execute: (instructions) => submitUnattended(sessions(), instructions),
    chat,
    readOutput: (sessionId, seq) => sessions().readOutput(sessionId, seq),
    workspace,
    workspaceAt: workspaces.at,
    env,
    plugins,
    logsPrints,
    isLocalEdition: options.localEdition !== undefined,
    redactor,
    fetch: (input, init) => fetch(input, init),
    clock,
    log,
  });
  return { workspaces, extensions };
}

/** Sessions with their models and permissions. */
function openSessions(
  { config, options: { redactor, log }, database, clock, closers }: Base,
  {
    agentId,
    workspaces,
    extensions,
    traces,
  }: { agentId: string; workspaces: Workspaces; extensions: Extensions; traces: Traces },
) {
  const { name, dataDir } = config;
  const gateway = gatewayAccess({ url: config.gatewayUrl, token: config.gatewayToken, redactor, clock });
  const permissions = createPermissions({
    agentId,
    store: permissionStore(database),
    configuredRules: extensions.permissionRules,
    now: () => clock.now(),
  });
  const snapshots = createSnapshots({
    dataDir,
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
    name,
    dataDir,
    bucket: s3Settings('AGENT_', config),
    workspaces,
    registry: extensions.registry,
    permissions,
    snapshots,
    defaultModel: config.model,
    model: gateway.model,
    describeModel: gateway.describe,
    limits: config,
    clock,
    log,
    traces,
  });
  closers.defer(() => sessions.runs.close(0));
  const chat = createChat(sessions.inputs);
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

// Limits of the keys of the agent, who is their one caller, and of the answers under them. An agent serves
// the programs of one person, which repeat a call within minutes. In the growth benchmark, a table of 5,500
// keys took 10 MB.
const maxKeys = 10_000;
const maxStoredBytes = 4 * 1024 * 1024;
// How long a key stays taken after its process has died.
const keyLeaseMs = 20_000;

async function openIdempotency(
  { options: { log }, database, clock, closers }: Base,
  { agentId, receiptOf }: Pick<IdempotencyOptions, 'receiptOf'> & { agentId: string },
): Promise<Idempotency> {
  const idempotency = createIdempotency({
    database,
    schema: 'agent',
    leaseMs: keyLeaseMs,
    maxKeysPerCaller: maxKeys,
    maxBytesPerCaller: maxStoredBytes,
    receiptOf,
    clock,
    log,
  });
  // Only one process at a time uses the embedded database, so calls that it stores as running ended
  // with the previous process.
  if (database.engine === 'embedded') await idempotency.endLeases(keyOwner(agentId));
  closers.defer(() => idempotency.close());
  return idempotency;
}

async function startTelemetry({
  config,
  options: { version = 'unknown', redactor, log },
  database,
  clock,
  closers,
}: Base): Promise<Telemetry> {
  const settings = telemetrySettings(config);
  for (const secret of telemetrySecrets(settings)) redactor.hold(secret);
  const telemetry = await openTelemetry({
    settings,
    surface: 'agent',
    version,
    hide: (text) => redactor.hide(text),
    clock,
    log,
  });
  closers.defer(() => telemetry.close());
  registerDatabaseMetrics(telemetry.metrics, database);
  return telemetry;
}

interface ServerParts {
  definition: AgentContract;
  handlers: Parameters<typeof createContract<Identity>>[0]['handlers'];
  tokens: Tokens;
  idempotency: Idempotency;
  observer: ServerOptions['observer'];
  /** The address of this server, once it listens. */
  url(): string;
}

function createAgentServer(
  { config, options: { log, timeouts, validateResponses, localEdition }, clock }: Base,
  { definition, handlers, tokens, idempotency, observer, url }: ServerParts,
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
async function drain({ config: { drainMs }, server, runs, closers }: LifecycleParts): Promise<void> {
  try {
    await Promise.all([server.close({ drainMs }), runs.close(Math.max(0, drainMs - 1_000))]);
  } finally {
    await closers.close();
  }
}

async function readContract(variant: AgentConfig['variant']): Promise<AgentContract> {
  const folder = variant === 'classic' ? 'agent-classic' : 'agent';
  const text = await readText(assetPath(`src/contract/${folder}/bundle.json`));
  return JSON.parse(text) as AgentContract;
}
