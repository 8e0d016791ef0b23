// An agent for one test, with its own data, workspace and token, and a client that uses them.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type AgentClient, createAgentClient } from '@townhall/agent';
import { readAgentConfig, type AgentConfig } from '../../src/agent/config.ts';
import { type AgentOptions as CreateOptions, createAgent } from '../../src/agent/compose.ts';
import type { Database, Sql } from '../../src/kernel/data/database.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { hasBubblewrap } from './bubblewrap.ts';
import { silentLog, testDatabase } from './databases.ts';

export interface AgentOptions {
  gatewayUrl: string;
  gatewayToken?: string;
  gatewayTokenFile?: string;
  model?: string;
  variant?: 'current' | 'classic';
  name?: string;
  /** A folder that outlives the agent; without it the agent gets a new one. */
  dataDir?: string;
  workspace?: string;
  /**
   * An open database that outlives the agent; without it the agent gets a new one on the engine of
   * the run.
   */
  database?: Database;
  settings?: Partial<AgentConfig>;
  createOptions?: Partial<CreateOptions>;
}

export interface TestAgent {
  name: string;
  url: string;
  token: string;
  tokenFile: string;
  workspace: string;
  dataDir: string;
  client: AgentClient;
  database: Database;
  sql: Sql;
  /** Calls a route with exactly these headers. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

export async function startAgent(options: AgentOptions): Promise<TestAgent> {
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'townhall-agent-')));
  const { database, close: closeDatabase } =
    options.database === undefined ? await testDatabase() : { database: options.database, close: undefined };
  const flags = {
    'data-dir': dataDir,
    'gateway-url': options.gatewayUrl,
    port: '0',
    ...(options.workspace === undefined ? {} : { workspace: options.workspace }),
    ...(options.model === undefined ? {} : { model: options.model }),
    ...(options.variant === undefined ? {} : { variant: options.variant }),
    ...(options.name === undefined ? {} : { name: options.name }),
    ...(options.gatewayTokenFile === undefined ? {} : { 'gateway-token-file': options.gatewayTokenFile }),
  };
  const config = readAgentConfig(flags, { AGENT_GATEWAY_TOKEN: options.gatewayToken ?? 'th_usr_test' });
  const agent = await createAgent(
    {
      ...config,
      modelRetries: 0,
      modelWaitMs: 0,
      drainMs: 2_000,
      unsafeShell: !hasBubblewrap,
      ...options.settings,
    },
    {
      log: silentLog,
      redactor: createRedactor(),
      validateResponses: true,
      database,
      ...options.createOptions,
    },
  );
  const { url } = await agent.listen();
  const token = (await readFile(agent.tokenFile, 'utf8')).trim();
  return {
    name: config.name,
    url,
    token,
    tokenFile: agent.tokenFile,
    workspace: options.workspace ?? join(dataDir, 'workspace'),
    dataDir,
    client: createAgentClient({ baseUrl: url, token }),
    database,
    sql: database.sql,
    fetch: (path, init) => fetch(`${url}${path}`, init),
    async close() {
      await agent.close();
      await closeDatabase?.();
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}
