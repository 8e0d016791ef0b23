// Constructs the extensions of the agent: plugins and services. Each part registers its close where it
// is constructed, so the parts close in reverse order.
import { resolve } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import type { Closers } from '../kernel/closers.ts';
import type { Database } from '../kernel/data/database.ts';
import type { Log } from '../kernel/log.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import type { AgentConfig } from './config.ts';
import {
  context,
  createContainment,
  createProgramRunner,
  createRegistry,
  files,
  loadPlugins,
  mcp,
  memory,
  namedFiles,
  noteStore,
  plugins,
  readPluginFile,
  schedule,
  scheduleStore,
  shell,
  type Containment,
  type Plugin,
  type PluginCore,
  type PluginFile,
  type PluginOwner,
  type PluginRegistry,
  type ProgramRunner,
  type ReadOutput,
  type Workspace,
  type WorkspaceAt,
} from './plugins/index.ts';
import { openSandbox, startOrphanReaper, type Sandbox } from './processes/index.ts';
import type { ConfiguredRule } from './permissions/index.ts';
import type { Chat } from './sessions/index.ts';
import {
  chatRoutes,
  chatService,
  createDirectory,
  processService,
  services,
  type ServiceDirectory,
} from './services/index.ts';

export interface ExtensionOptions {
  config: AgentConfig;
  database: Database;
  agentId: string;
  /** Submits an unattended run and resolves once it is accepted. It works only after `start`. */
  execute(instructions: string): Promise<{ runId: string }>;
  /** The chats of the sessions. It works only after `start`. */
  chat(): Chat;
  /** Reads outputs of earlier tool calls. It works only after `start`. */
  readOutput: ReadOutput;
  /** The workspace of calls without a session, and of MCP servers and services. */
  workspace: Workspace;
  workspaceAt: WorkspaceAt;
  /** The environment of child processes: the agent's search path, home and language. */
  env: Readonly<Record<string, string>>;
  /** Plugins besides the built-in and configured ones. */
  plugins: readonly Plugin[];
  /**
   * Whether to log the lines that plugins print; needed where standard output is the log.
   */
  logsPrints: boolean;
  isLocalEdition: boolean;
  /** Receives the secrets of the plugin configuration. */
  redactor: Pick<Redactor, 'hold'>;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export interface Extensions {
  registry: PluginRegistry;
  pluginCore: PluginCore;
  sandbox: Sandbox;
  /** Rules for tool calls, from the plugin configuration. */
  permissionRules: readonly ConfiguredRule[];
  /** The handlers of the plugin and service routes, in the configured variant. */
  handlers: Readonly<Record<string, unknown>>;
  /**
   * Starts plugins and services, before the agent listens. A part that fails to start gets the state
   * `failed`; the others run.
   */
  start(): Promise<void>;
}

/** Throws for an invalid plugin, service or configuration; then nothing has started. */
export async function createExtensions(closers: Closers, options: ExtensionOptions): Promise<Extensions> {
  const { config, workspace, clock, log } = options;
  const reaper = startOrphanReaper({ log });
  closers.defer(() => reaper.close());
  const containment = createContainment({ log, logsPrints: options.logsPrints });
  closers.defer(() => containment.close());
  const env = { ...options.env, ...reaper.env };
  const file = await readPluginFile(config.pluginConfig);
  await workspace.protect(programFiles(file, config, workspace.root));
  const sandbox = await startSandbox(options);
  const programs = createProgramRunner({ sandbox, workspace, env, log });

  const registry = await openRegistry(closers, options, { file, programs, containment });
  const directory = openDirectory(options, { registry, file, programs });
  closers.defer(() => directory.close());
  const { core, handlers } = createRoutes(config, { registry, directory, workspace, clock });
  return {
    registry,
    pluginCore: core,
    sandbox,
    permissionRules: file.permissions,
    handlers,
    async start() {
      await registry.start(workspace.root);
      await directory.start();
    },
  };
}

interface PluginParts {
  /** The plugin configuration. */
  file: PluginFile;
  programs: ProgramRunner;
  containment: Containment;
}

/** All plugins in the order in which their hooks run: built-in, from the options, from the configuration. */
async function openRegistry(
  closers: Closers,
  options: ExtensionOptions,
  parts: PluginParts,
): Promise<PluginRegistry> {
  const { config, clock, log } = options;
  const { file, containment } = parts;
  const allPlugins = [
    ...builtInPlugins(options, parts),
    ...options.plugins.map((plugin) => ({ plugin, owner: containment.owner(plugin.name) })),
    ...(await loadPlugins(config.plugins, containment)),
  ];
  const registry = createRegistry(
    allPlugins.map(({ plugin, owner }) => owner?.contain(plugin) ?? plugin),
    {
      lateFailureOf: (name) => allPlugins.find(({ owner }) => owner?.name === name)?.owner?.failure,
      config: file.plugins,
      hookMs: config.hookTimeoutMs,
      startMs: config.pluginStartMs,
      clock,
      log,
    },
  );
  closers.defer(() => registry.stop());
  // Reading the availability updates the state, which removes the plugin's tools.
  containment.onFailure((name) => void registry.plugin(name)?.availability());
  return registry;
}

/** The service `chat`, the services of plugins, and those of the configuration. */
function openDirectory(
  { config, chat, clock, log }: ExtensionOptions,
  { registry, file, programs }: Omit<PluginParts, 'containment'> & { registry: PluginRegistry },
): ServiceDirectory {
  return createDirectory({
    services: [
      chatService(chat),
      ...registry.plugins
        .filter((plugin) => plugin.isActive())
        .flatMap(({ definition }) => definition.services ?? []),
      ...[...file.services].map(([name, definition]) =>
        processService({ name, ...definition, prepareProgram: programs.prepare, clock }),
      ),
    ],
    limits: { startMs: config.pluginStartMs },
    prepareProgram: programs.prepare,
    timeoutMs: config.commandTimeoutMs,
    clock,
    log,
  });
}

// Logs whether commands are confined, so that an operator learns of a missing sandbox. The local edition
// logs it at a lower level, since its start screen shows the same.
async function startSandbox(options: ExtensionOptions): Promise<Sandbox> {
  const { config, workspace, env, log } = options;
  const level = options.isLocalEdition ? 'info' : 'warn';
  const sandbox = await openSandbox({
    workspace: workspace.root,
    hidden: workspace.hidden,
    read: config.sandboxRead.map((path) => resolve(path)),
    isOff: config.unsafeShell,
    path: env['PATH'],
  });
  if (sandbox.isOff)
    log[level]({}, 'commands, MCP servers and services run without a sandbox, because of --unsafe-shell');
  if (sandbox.missing !== undefined)
    log[level](
      { reason: sandbox.missing },
      'there is no sandbox: shell is off, and so are MCP servers and services that are programs',
    );
  return sandbox;
}

// The files that the agent itself starts or loads: plugins, and the files that commands and their
// variables name.
function programFiles({ mcpServers, services }: PluginFile, config: AgentConfig, root: string): string[] {
  const ofServers = [...mcpServers.values()].flatMap((server) => {
    if (!('command' in server)) return [];
    const words = [server.command, ...(server.args ?? []), ...Object.values(server.env ?? {})];
    return words.flatMap(namedFiles).map((name) => resolve(server.cwd ?? root, name));
  });
  const ofServices = [...services.values()].flatMap(({ command, env = {}, commands = {} }) => {
    const ofCommands = Object.values(commands).flatMap((entry) => entry.command);
    const words = [...command, ...Object.values(env), ...ofCommands];
    return words.flatMap(namedFiles).map((name) => resolve(root, name));
  });
  return [...config.plugins.map((path) => resolve(path)), ...ofServers, ...ofServices];
}

// Built-in plugins are the agent's own code, whose uncaught errors end the process. Only `mcp` has an
// owner, which contains its errors like those of third-party plugins: most of its code is an SDK that
// handles what servers send.
function builtInPlugins(
  {
    database,
    agentId,
    workspace,
    workspaceAt,
    execute,
    readOutput,
    redactor,
    fetch,
    clock,
    log,
  }: ExtensionOptions,
  { file, programs, containment }: PluginParts,
): { plugin: Plugin; owner?: PluginOwner }[] {
  // pg-boss takes a while to load and polls the database; an agent without a schedule needs
  // neither.
  const openJobs = async () =>
    (await import('../kernel/data/jobs.ts')).createJobs(database, { schema: 'pgboss', log, pollSeconds: 1 });
  const servers = file.mcpServers;
  return [
    { plugin: files(workspaceAt) },
    { plugin: shell({ workspaceAt, programs, clock }) },
    { plugin: context({ readOutput }) },
    { plugin: memory({ store: noteStore(database, agentId) }) },
    {
      plugin: mcp({ servers, workspace: workspace.root, programs, redactor, fetch, clock, log }),
      owner: containment.owner('mcp'),
    },
    {
      plugin: schedule({
        store: scheduleStore(database, agentId),
        agentId,
        openJobs,
        execute,
        clock,
        log,
      }),
    },
  ];
}

function createRoutes(
  { toolTimeoutMs, variant }: AgentConfig,
  {
    registry,
    directory,
    workspace,
    clock,
  }: { registry: PluginRegistry; directory: ServiceDirectory; workspace: Workspace; clock: Clock },
): { core: PluginCore; handlers: Extensions['handlers'] } {
  const { core, handlers, ui } = plugins({
    registry,
    workspace: workspace.root,
    toolTimeoutMs,
    variant,
    clock,
  });
  return {
    core,
    handlers: {
      ...handlers,
      ...ui.handlers,
      ...services({ directory }).handlers,
      ...chatRoutes({ directory }).handlers,
    },
  };
}
