// Constructs what extends the agent beside its sessions: plugins and services. Each part is deferred for closing where it
// is constructed, so the list below is also the order of the end, read backwards.
import type { Clock } from '../kernel/clock.ts';
import type { Closers } from '../kernel/closers.ts';
import type { Database } from '../kernel/data/database.ts';
import type { Log } from '../kernel/log.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
import type { AgentConfig } from './config.ts';
import {
  createContainment,
  createRegistry,
  files,
  loadPlugins,
  mcp,
  memory,
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
  type Workspace,
} from './plugins/index.ts';
import { childEnvironment, startOrphanReaper } from './processes/index.ts';
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
  /** Submits an unattended run and resolves once it is accepted; not called before `start`. */
  execute(instructions: string): Promise<{ runId: string }>;
  /** Not called before `start`. */
  chat(): Chat;
  workspace: Workspace;
  /** The environment of the agent; child processes get its search path, home and language. */
  env: Readonly<Record<string, string | undefined>>;
  /** Beside the built-in plugins and those of the configuration. */
  plugins: readonly Plugin[];
  /** Whether standard output is the log, so that lines which plugins print must become lines of it. */
  logsPrints: boolean;
  /** Gets the secrets of the plugin configuration. */
  redactor: Pick<Redactor, 'hold'>;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export interface Extensions {
  registry: PluginRegistry;
  pluginCore: PluginCore;
  /** Of the plugin and service routes, in the configured variant. */
  handlers: Readonly<Record<string, unknown>>;
  /** To be called before the agent listens. A plugin or service that fails to start is `failed`; the others run. */
  start(): Promise<void>;
}

/** Throws when a plugin or a service is not valid, or its configuration does not fit; nothing has started then. */
export async function createExtensions(closers: Closers, options: ExtensionOptions): Promise<Extensions> {
  const { config, workspace, clock, log } = options;
  const reaper = startOrphanReaper({ log });
  closers.defer(() => reaper.close());
  const containment = createContainment({ log, logsPrints: options.logsPrints });
  closers.defer(() => containment.close());
  const env = { ...childEnvironment(options.env), ...reaper.env };
  const file = await readPluginFile(config.pluginConfig);

  const foreignPlugins = [
    ...options.plugins.map((plugin) => ({ plugin, owner: containment.owner(plugin.name) })),
    ...(await loadPlugins(config.plugins, containment)),
  ];
  const allPlugins = [...builtInPlugins(options, { file, env, containment }), ...foreignPlugins];
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
  // Reading the availability updates the state, which takes the plugin's tools away.
  containment.onFailure((name) => void registry.plugin(name)?.availability());

  const directory = createDirectory({
    services: [
      chatService(options.chat),
      ...registry.plugins
        .filter((plugin) => plugin.isActive())
        .flatMap(({ definition }) => definition.services ?? []),
      ...[...file.services].map(([name, definition]) =>
        processService({ name, ...definition, workspace: workspace.root, baseEnv: env, clock }),
      ),
    ],
    limits: { startMs: config.pluginStartMs },
    workspace: workspace.root,
    env,
    timeoutMs: config.commandTimeoutMs,
    clock,
    log,
  });
  closers.defer(() => directory.close());

  const { core, handlers } = createRoutes(config, { registry, directory, workspace, clock });
  return {
    registry,
    pluginCore: core,
    handlers,
    async start() {
      await registry.start(workspace.root);
      await directory.start();
    },
  };
}

// Built-in plugins are the agent's own code, whose errors end the process like any other. Only `mcp` has an owner, which
// contains its errors like those of foreign plugins: most of it is an SDK that handles what servers send.
function builtInPlugins(
  { database, agentId, workspace, execute, redactor, fetch, clock, log }: ExtensionOptions,
  {
    file,
    env,
    containment,
  }: { file: PluginFile; env: Readonly<Record<string, string>>; containment: Containment },
): { plugin: Plugin; owner?: PluginOwner }[] {
  // pg-boss takes a while to load and polls the database; an agent without a schedule needs none of it.
  const openJobs = async () =>
    (await import('../kernel/data/jobs.ts')).createJobs(database, { schema: 'pgboss', log, pollSeconds: 1 });
  const servers = file.mcpServers;
  return [
    { plugin: files(workspace) },
    { plugin: shell({ workspace, env, clock }) },
    { plugin: memory({ store: noteStore(database, agentId) }) },
    {
      plugin: mcp({ servers, workspace: workspace.root, env, redactor, fetch, clock, log }),
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
