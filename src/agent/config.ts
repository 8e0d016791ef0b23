// The agent's settings: one table, read once at the start from flags and
// environment, then passed on as values.
import { join, resolve } from 'node:path';
import type { S3Options } from '../kernel/storage/s3-client.ts';
import { s3Rows, s3Settings } from '../kernel/storage/s3-settings.ts';
import {
  SettingError,
  choice,
  flagSwitch,
  integer,
  list,
  optionalText,
  postgresUrl,
  readSettings,
  secretText,
  text,
} from '../kernel/settings.ts';
import { telemetryRows, telemetrySettings } from '../kernel/telemetry/telemetry-settings.ts';
import type { GatewayToken } from './gateway.ts';

const deadline = { flag: null, min: 1, max: 24 * 60 * 60 * 1000 };

/** Every setting of `townhall agent`; its `--help` is generated from this table. */
export const agentSettings = {
  port: integer('AGENT_PORT', 5314, 'Port to listen on; 0 takes any free one.', {
    flag: 'port',
    min: 0,
    max: 65535,
  }),
  host: text('AGENT_HOST', '127.0.0.1', 'Address to listen on.', { flag: 'host' }),
  allowHost: list(
    'AGENT_ALLOW_HOST',
    'Further Host headers to accept, with their port, separated by commas.',
    { flag: 'allow-host' },
  ),
  allowOrigin: list('AGENT_ALLOW_ORIGIN', 'Origins whose pages may call the agent, separated by commas.', {
    flag: 'allow-origin',
  }),
  dataDir: text('AGENT_DATA_DIR', './data/agent', 'Folder of the database and the token file.', {
    flag: 'data-dir',
  }),
  databaseUrl: postgresUrl('AGENT_DATABASE_URL', 'PostgreSQL to use instead of the embedded database.', {
    flag: 'database-url',
  }),
  ...s3Rows('AGENT_', 'attachments'),
  tokenFile: optionalText(
    'AGENT_TOKEN_FILE',
    'File of the first token; agent.token in the data folder by default.',
    { flag: 'token-file' },
  ),
  workspace: optionalText(
    'AGENT_WORKSPACE',
    'Folder that tools may read and write; workspace in the data folder by default.',
    { flag: 'workspace' },
  ),
  gatewayUrl: text('AGENT_GATEWAY_URL', 'http://127.0.0.1:43127', 'Address of the gateway.', {
    flag: 'gateway-url',
  }),
  gatewayToken: secretText('AGENT_GATEWAY_TOKEN', 'User token for the gateway.'),
  gatewayTokenFile: optionalText(
    'AGENT_GATEWAY_TOKEN_FILE',
    'File with that token; it may be created or changed while the agent runs.',
    { flag: 'gateway-token-file' },
  ),
  model: text('AGENT_MODEL', 'local/guide', 'Default model of runs.', { flag: 'model' }),
  variant: choice('AGENT_VARIANT', ['current', 'classic'], 'current', 'Form of the API that it serves.', {
    flag: 'variant',
  }),
  name: text('AGENT_NAME', 'townhall', 'Name of the agent; replicas on one database share it.', {
    flag: 'name',
  }),
  logLevel: choice('LOG_LEVEL', ['debug', 'info', 'warn', 'error', 'silent'], 'info', 'How much is logged.'),
  ...telemetryRows({ prefix: 'AGENT_', serviceName: 'townhall-agent' }),
  plugins: list('AGENT_PLUGINS', 'Files of further plugins, separated by commas; the flag may be repeated.', {
    flag: 'plugin',
    isRepeatable: true,
  }),
  pluginConfig: optionalText(
    'AGENT_PLUGIN_CONFIG',
    'JSON file with the settings of plugins, MCP servers and services.',
    { flag: 'plugin-config' },
  ),
  sandboxRead: list(
    'AGENT_SANDBOX_READ',
    'Further folders that sandboxed programs may read, separated by commas; the flag may be repeated.',
    { flag: 'sandbox-read', isRepeatable: true },
  ),
  unsafeShell: flagSwitch(
    'AGENT_UNSAFE_SHELL',
    'Run commands, MCP servers and services without a sandbox, with all rights of this user.',
    { flag: 'unsafe-shell' },
  ),
  snapshotFiles: integer(
    'AGENT_SNAPSHOT_FILES',
    20_000,
    'Maximum number of files in a workspace whose changes can be undone; 0 disables snapshots.',
    { flag: null, min: 0, max: 1_000_000 },
  ),
  maxWorkspaces: integer(
    'AGENT_MAX_WORKSPACES',
    100,
    'Sessions that may have a workspace of their own; more are refused with 409.',
    { flag: null, min: 0, max: 10_000 },
  ),
  executeWaitMs: integer(
    'AGENT_EXECUTE_WAIT_MS',
    120_000,
    'How long execute waits before it answers 202.',
    deadline,
  ),
  toolTimeoutMs: integer('AGENT_TOOL_TIMEOUT_MS', 30_000, 'Deadline of one tool call.', deadline),
  hookTimeoutMs: integer('AGENT_HOOK_TIMEOUT_MS', 5_000, 'Deadline of one plugin hook.', deadline),
  pluginStartMs: integer(
    'AGENT_PLUGIN_START_MS',
    10_000,
    'Deadline of the start of a plugin, and of each attempt to start a service.',
    deadline,
  ),
  commandTimeoutMs: integer('AGENT_COMMAND_TIMEOUT_MS', 30_000, 'Deadline of a service command.', deadline),
  drainMs: integer(
    'AGENT_DRAIN_MS',
    25_000,
    'Time that runs get to finish after the request to stop.',
    deadline,
  ),
  leaseMs: integer(
    'AGENT_LEASE_MS',
    10_000,
    'How long a replica that does not renew its lease keeps its runs.',
    deadline,
  ),
  maxSteps: integer('AGENT_MAX_STEPS', 64, 'Maximum number of steps of one run.', {
    flag: null,
    min: 1,
    max: 1000,
  }),
  approvalTtlMs: integer(
    'AGENT_APPROVAL_TTL_MS',
    600_000,
    'How long an approval may stay open before it counts as denied.',
    deadline,
  ),
  unattendedApprovals: choice(
    'AGENT_UNATTENDED_APPROVALS',
    ['deny', 'approve'],
    'deny',
    'The answer to calls that need approval in unattended sessions.',
  ),
  heartbeatMs: integer(
    'AGENT_HEARTBEAT_MS',
    15_000,
    'Time between two heartbeats of a quiet event stream.',
    deadline,
  ),
  maxReplayEvents: integer(
    'AGENT_MAX_REPLAY_EVENTS',
    100_000,
    'How many past events an event stream may replay.',
    {
      flag: null,
      min: 1,
      max: 100_000_000,
    },
  ),
  maxWaiting: integer('AGENT_MAX_WAITING', 1_000, 'Inputs that may wait in one session.', {
    flag: null,
    min: 1,
    max: 100_000,
  }),
  keptDays: integer('AGENT_EXECUTE_KEPT_DAYS', 30, 'How many days sessions of kind execute are kept.', {
    flag: null,
    min: 1,
    max: 36_500,
  }),
  maxRuns: integer('AGENT_MAX_RUNS', 64, 'Concurrent runs; more wait for a free place.', {
    flag: null,
    min: 1,
    max: 10_000,
  }),
  maxQueuedRuns: integer(
    'AGENT_MAX_QUEUED_RUNS',
    1_000,
    'Inputs that may wait for a free place, in all sessions together; more are refused with 429.',
    { flag: null, min: 0, max: 100_000 },
  ),
  modelRetries: integer(
    'AGENT_MODEL_RETRIES',
    5,
    'How often a step is retried after its model failed or its stream broke.',
    { flag: null, min: 0, max: 10 },
  ),
  modelWaitMs: integer(
    'AGENT_MODEL_WAIT_MS',
    600_000,
    'How long a run waits for models that are at their limit or unavailable.',
    { ...deadline, min: 0 },
  ),
};

type Settings = ReturnType<typeof readSettings<typeof agentSettings>>;

/** Paths are absolute, times in milliseconds. */
export interface AgentConfig extends Omit<
  Settings,
  'gatewayToken' | 'gatewayTokenFile' | 'tokenFile' | 'workspace'
> {
  gatewayToken: GatewayToken;
  tokenFile: string;
  workspace: string;
  /**
   * Whether the workspace is the default one within the data folder, which is created when it does
   * not exist.
   */
  isDefaultWorkspace: boolean;
}

/** Location of an agent's data and the agent's name, for commands. */
export interface AgentData {
  /** Absolute. */
  dataDir: string;
  databaseUrl: string | undefined;
  name: string;
}

/**
 * Reads only the settings of an agent's data, so that a command needs no others. Throws a SettingError.
 */
export function readAgentData(
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): AgentData {
  const { dataDir, databaseUrl, name } = agentSettings;
  const settings = readSettings({ dataDir, databaseUrl, name }, flags, env);
  return { ...settings, dataDir: resolve(settings.dataDir) };
}

/** Reads only the settings of the bucket for attachments. Throws a SettingError. */
export function readAgentBucket(env: Readonly<Record<string, string | undefined>>): S3Options | undefined {
  return s3Settings('AGENT_', readSettings(s3Rows('AGENT_', ''), {}, env));
}

/** Reads and checks the settings. Throws a SettingError that names the invalid one. */
export function readAgentConfig(
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): AgentConfig {
  const { gatewayToken, gatewayTokenFile, tokenFile, workspace, ...settings } = readSettings(
    agentSettings,
    flags,
    env,
  );
  requireShape(
    '--name',
    settings.name,
    /^[A-Za-z0-9_-]{1,128}$/,
    'up to 128 letters, digits, hyphens and underscores',
  );
  requireShape(
    '--model',
    settings.model,
    /^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}$/,
    'the id of a model, such as local/guide',
  );
  requireGatewayUrl(settings.gatewayUrl);
  telemetrySettings(settings);
  s3Settings('AGENT_', settings);
  for (const origin of settings.allowOrigin) {
    if (!URL.canParse(origin) || new URL(origin).origin !== origin) {
      throw new SettingError(`--allow-origin takes origins such as http://localhost:3000, not "${origin}".`);
    }
  }
  const dataDir = resolve(settings.dataDir);
  return {
    ...settings,
    dataDir,
    gatewayToken: requireToken(gatewayToken, gatewayTokenFile),
    tokenFile: tokenFile === undefined ? join(dataDir, 'agent.token') : resolve(tokenFile),
    workspace: workspace === undefined ? join(dataDir, 'workspace') : resolve(workspace),
    isDefaultWorkspace: workspace === undefined,
  };
}

// A token file may be filled after the start. Without a file or a token no run could ever succeed,
// so the start fails.
function requireToken(value: string | undefined, file: string | undefined): GatewayToken {
  if (file !== undefined) return { file: resolve(file) };
  if (value === undefined) {
    throw new SettingError(
      'The agent needs a token of the gateway: give --gateway-token-file, or set AGENT_GATEWAY_TOKEN.',
    );
  }
  if (!/^[\x21-\x7e]{1,256}$/.test(value))
    throw new SettingError('AGENT_GATEWAY_TOKEN takes a token: one word without spaces.');
  return { value };
}

function requireShape(flag: string, text: string, shape: RegExp, description: string): void {
  if (!shape.test(text))
    throw new SettingError(`${flag} takes ${description}, not ${JSON.stringify(text.slice(0, 200))}.`);
}

function requireGatewayUrl(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isUsable =
    url !== undefined &&
    /^https?:$/.test(url.protocol) &&
    url.username === '' &&
    url.password === '' &&
    url.search === '' &&
    url.hash === '';
  if (!isUsable)
    throw new SettingError(
      '--gateway-url takes an http or https address without a query, such as http://127.0.0.1:43127.',
    );
}
