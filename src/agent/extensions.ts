// What the agent can do beside talking: the plugins built in and given, and the services. It is the part of the
// composition root that knows all of them; the order of start and end is its rule.
import type { Clock } from '../kernel/clock.ts';
import type { Database } from '../kernel/data/database.ts';
import type { Log } from '../kernel/log.ts';
import type { Redactor } from '../kernel/secrets/secret.ts';
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
  type Plugin,
  type Containment,
  type PluginRegistry,
  type PluginRooms,
  type Workspace,
} from './plugins/index.ts';
import type { Chat } from './sessions/index.ts';
import { keepPrograms, programEnvironment } from './processes/index.ts';
import {
  chatRoom,
  chatService,
  createDirectory,
  processService,
  services,
  type ServiceDirectory,
} from './services/index.ts';

/** The settings of the agent that count here. Times in milliseconds. */
export interface HandsSettings {
  variant: 'current' | 'classic';
  /** Files of plugins. */
  plugins: readonly string[];
  /** The file that configures plugins, MCP servers and services. */
  pluginConfig: string | undefined;
  hookTimeoutMs: number;
  pluginStartMs: number;
  toolTimeoutMs: number;
  commandTimeoutMs: number;
}

export interface HandsNeeds {
  config: HandsSettings;
  database: Database;
  agentId: string;
  /** Begins a run that nobody attends and resolves once it is accepted; not called before `start`. */
  execute(instructions: string): Promise<{ runId: string }>;
  /** Not asked for before `start`. */
  chat(): Chat;
  workspace: Workspace;
  /** The environment of the process; of it programs get where programs lie, the home and the language. */
  env: Readonly<Record<string, string | undefined>>;
  /** Beside those built in and those of the configuration. */
  plugins: readonly Plugin[];
  /** Whether standard output is the log, so that lines which plugins print must become lines of it. */
  logsPrints: boolean;
  /** Learns the secrets of the configuration. */
  redactor: Pick<Redactor, 'hold'>;
  fetch: typeof fetch;
  clock: Clock;
  log: Log;
}

export interface Hands {
  registry: PluginRegistry;
  directory: ServiceDirectory;
  core: PluginRooms['core'];
  /** Of all their routes, in the chosen variant. */
  handlers: Readonly<Record<string, unknown>>;
  /** Before anybody can ask: plugins, then services. What fails to start is `failed` and stops nothing else. */
  start(): Promise<void>;
  /** When no run and no request is under way any more: services, then plugins. */
  close(): Promise<void>;
}

/** Throws when a plugin or a service is not sound, or its configuration does not fit; nothing has started then. */
export async function openHands(needs: HandsNeeds): Promise<Hands> {
  const keeper = keepPrograms({ log: needs.log });
  const containment = createContainment({ log: needs.log, logsPrints: needs.logsPrints });
  const release = (): void => {
    containment.close();
    keeper.close();
  };
  try {
    const hands = await assemble(needs, containment, { ...programEnvironment(needs.env), ...keeper.env });
    return { ...hands, close: () => hands.close().finally(release) };
  } catch (error) {
    release();
    throw error;
  }
}

/** `env` is that of programs. */
async function assemble(
  needs: HandsNeeds,
  containment: Containment,
  env: Readonly<Record<string, string>>,
): Promise<Hands> {
  const { config, database, agentId, workspace, clock, log } = needs;
  const file = await readPluginFile(config.pluginConfig);
  // What is behind jobs takes a while to load and keeps the database busy; an agent without a schedule needs none.
  const openJobs = async () =>
    (await import('../kernel/data/jobs.ts')).createJobs(database, {
      schema: 'pgboss',
      log,
      pollSeconds: 1,
    });
  // The built-in plugins are code of the agent, whose errors end the process like any other. Only `mcp` is contained as
  // those of others are: most of it is an SDK that handles what servers send.
  const servers = {
    owner: containment.owner('mcp'),
    plugin: mcp({
      servers: file.mcpServers,
      workspace: workspace.root,
      env,
      redactor: needs.redactor,
      fetch: needs.fetch,
      clock,
      log,
    }),
  };
  const foreign = [
    ...needs.plugins.map((plugin) => ({ plugin, owner: containment.owner(plugin.name) })),
    ...(await loadPlugins(config.plugins, containment)),
  ];
  const builtIn = [
    files(workspace),
    shell({ workspace, env, clock }),
    memory({ store: noteStore(database, agentId) }),
    servers.owner.contain(servers.plugin),
    schedule({
      store: scheduleStore(database, agentId),
      agentId,
      openJobs,
      execute: needs.execute,
      clock,
      log,
    }),
  ];
  const registry = createRegistry(
    [...builtIn, ...foreign.map(({ plugin, owner }) => owner.contain(plugin))],
    {
      lateFailureOf: (name) => [servers, ...foreign].find(({ owner }) => owner.name === name)?.owner.failure,
      config: file.plugins,
      hookMs: config.hookTimeoutMs,
      startMs: config.pluginStartMs,
      clock,
      log,
    },
  );
  // Asks again, so that the tools of the plugin are offered no longer.
  containment.onFailure((name) => void registry.plugin(name)?.availability());
  const ofPlugins = registry.plugins
    .filter((plugin) => plugin.isActive())
    .flatMap(({ definition }) => definition.services ?? []);
  const configured = [...file.services].map(([name, definition]) =>
    processService({ name, ...definition, workspace: workspace.root, baseEnv: env, clock }),
  );
  const directory = createDirectory({
    services: [chatService(needs.chat), ...ofPlugins, ...configured],
    limits: { startMs: config.pluginStartMs },
    workspace: workspace.root,
    env,
    timeoutMs: config.commandTimeoutMs,
    clock,
    log,
  });
  const rooms = plugins({
    registry,
    workspace: workspace.root,
    toolTimeoutMs: config.toolTimeoutMs,
    variant: config.variant,
    clock,
  });
  return {
    registry,
    directory,
    core: rooms.core,
    handlers: {
      ...rooms.handlers,
      ...rooms.ui.handlers,
      ...services({ directory }).handlers,
      ...chatRoom({ directory }).handlers,
    },
    async start() {
      await registry.start(workspace.root);
      await directory.start();
    },
    async close() {
      await directory.close();
      await registry.stop();
    },
  };
}
