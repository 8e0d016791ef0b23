// The exports of `townhall` for projects: the types of services and plugins, and both servers for
// programs that embed them. The code of a server is loaded only when it is created, so that plugins
// start fast.
import { createRedactor } from './kernel/secrets/secret.ts';
import { createLog } from './kernel/log.ts';
import { systemClock } from './kernel/clock.ts';
import type { Plugin } from './agent/plugins/index.ts';
import type { ServiceDefinition } from './gateway/services/index.ts';

export { ActionError, defineService } from './gateway/services/index.ts';
export type {
  ActionBureau,
  ActionCall,
  ActionDefinition,
  ActionLog,
  ActionStatus,
  ActionUser,
  JobCall,
  JobDefinition,
  JobOptions,
  ProjectDatabase,
  ProjectQueue,
  ProjectResource,
  ProjectStorage,
  ServiceDefinition,
  ServiceRequirement,
} from './gateway/services/index.ts';
export { definePlugin, startPlugin } from './agent/plugins/index.ts';
export type {
  Action,
  ActionContext,
  Availability,
  Plugin,
  StartContext,
  StartedPlugin,
  StartPluginOptions,
} from './agent/plugins/index.ts';

export interface EmbeddedServer {
  /** Resolves once the server accepts requests; rejects when the address cannot be used. */
  listen(): Promise<{ url: string; port: number }>;
  /** Refuses new requests, waits for running requests to finish, then closes everything that was opened. */
  close(): Promise<void>;
}

export interface EmbeddedGateway extends EmbeddedServer {
  /** Issues a user token for the local user of the local edition, valid for 30 days. */
  issueLocalToken(): Promise<string>;
}

export interface EmbeddedAgent extends EmbeddedServer {
  /** The path of the file with the agent's token. */
  readonly tokenFile: string;
}

interface CommonOptions {
  /**
   * Settings by their environment keys; docs/guides/settings.md lists them. The process's environment is not
   * read.
   */
  settings?: Readonly<Record<string, string | undefined>>;
  /** Receives each line of the log, which is JSON. Without it nothing is logged. */
  log?: (line: string) => void;
}

export interface GatewayOptions extends CommonOptions {
  services?: readonly ServiceDefinition[];
}

export interface AgentOptions extends CommonOptions {
  plugins?: readonly Plugin[];
}

/**
 * Creates a gateway in this process. Resolves when its database is open and migrated. The server accepts
 * requests after `listen`.
 */
export async function createGateway({
  settings = {},
  services = [],
  log: write = () => {},
}: GatewayOptions = {}): Promise<EmbeddedGateway> {
  const [compose, { readGatewayConfig, requireStorage }, { openProject }] = await Promise.all([
    import('./gateway/compose.ts'),
    import('./gateway/config.ts'),
    import('./deploy/index.ts'),
  ]);
  const config = readGatewayConfig({}, settings);
  await requireStorage(config, systemClock);
  const redactor = createRedactor();
  const log = createLog({ level: config.logLevel, redactor, write });
  const project = config.project === undefined ? undefined : await openProject(config.project);
  const gateway = await compose.createGateway(config, {
    env: settings,
    log,
    redactor,
    clock: systemClock,
    services,
    project,
  });
  return {
    listen: () => gateway.listen(),
    close: () => gateway.close(),
    issueLocalToken: async () => (await gateway.issueLocalToken()).userToken,
  };
}

/** Creates an agent in this process. It accepts requests after `listen`. */
export async function createAgent({
  settings = {},
  plugins = [],
  log: write = () => {},
}: AgentOptions = {}): Promise<EmbeddedAgent> {
  const [compose, { readAgentConfig }] = await Promise.all([
    import('./agent/compose.ts'),
    import('./agent/config.ts'),
  ]);
  const config = readAgentConfig({}, settings);
  const redactor = createRedactor();
  const log = createLog({ level: config.logLevel, redactor, write });
  const agent = await compose.createAgent(config, { log, redactor, plugins });
  return { tokenFile: agent.tokenFile, listen: () => agent.listen(), close: () => agent.close() };
}
