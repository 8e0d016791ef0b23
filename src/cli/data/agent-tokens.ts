// The actions `token create|list|revoke` and `call` of `townhall agent`. A running agent executes
// them over its control socket; without one the command opens the database itself.
import { existsSync } from 'node:fs';
import { agentSettings, readAgentData, type AgentData } from '../../agent/config.ts';
import {
  tokenAdmin,
  tokenStore,
  type IssuedAgentToken,
  type ListedToken,
  type TokenAdmin,
} from '../../agent/tokens/index.ts';
import { callControl } from '../../kernel/control.ts';
import { connect, migrate } from '../../kernel/data/database.ts';
import { Problem } from '../../kernel/problem.ts';
import { SettingError } from '../../kernel/settings.ts';
import { action, jsonOption, settingOption } from '../command-line/command.ts';
import { readTtlSeconds } from '../command-line/duration.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { agentDatabase, askServer } from './database-location.ts';

/** Locates the agent's data; the same settings as those of the agent itself. */
const locationOptions = {
  'data-dir': settingOption(agentSettings.dataDir, 'PATH'),
  'database-url': settingOption(agentSettings.databaseUrl, 'URL'),
  name: settingOption(agentSettings.name, 'NAME'),
};

const createToken = action({
  path: 'token create',
  summary: 'Create another token and show it once.',
  arguments: { tokenName: { placeholder: 'NAME', isOptional: true } },
  options: {
    ttl: {
      kind: 'value',
      placeholder: 'TIME',
      summary: 'Lifetime such as 12h or 90d; without it, until the token is revoked.',
    },
    json: jsonOption,
    ...locationOptions,
  },
  async run({ arguments: { tokenName }, options: { ttl, json, ...flags }, env, print, printError }) {
    const expiry = ttl === undefined ? {} : { ttlSeconds: readTtlSeconds(ttl) };
    const request = { name: tokenName ?? 'command-line', ...expiry };
    const token: IssuedAgentToken = await askAgent(
      readAgentData(flags, env),
      { name: 'tokens.create', input: request },
      (tokens) => tokens.create(request),
    );
    if (json) print(JSON.stringify(token));
    else {
      print(token.token);
      const validity =
        token.expiresAt === null ? 'it is valid until it is revoked' : `it expires ${token.expiresAt}`;
      printError(`This token is shown once. Its id is ${token.tokenId}; ${validity}.`);
    }
    return 0;
  },
});

const listTokens = action({
  path: 'token list',
  summary: 'List the tokens.',
  options: { json: jsonOption, ...locationOptions },
  async run({ options: { json, ...flags }, env, print }) {
    const tokens: ListedToken[] = await askAgent(
      readAgentData(flags, env),
      { name: 'tokens.list', input: null },
      (admin) => admin.list(),
    );
    if (json) print(JSON.stringify({ items: tokens }));
    else for (const token of tokens) print(describeToken(token));
    return 0;
  },
});

const revokeToken = action({
  path: 'token revoke',
  summary: 'Revoke a token.',
  arguments: { tokenId: { placeholder: 'ID' } },
  options: { json: jsonOption, ...locationOptions },
  async run({ arguments: { tokenId }, options: { json, ...flags }, env, print }) {
    const { revoked } = await askAgent(
      readAgentData(flags, env),
      { name: 'tokens.revoke', input: tokenId },
      (tokens) => tokens.revoke(tokenId),
    );
    if (json) print(JSON.stringify({ tokenId, revoked }));
    else print(revoked ? `${tokenId} is revoked.` : `${tokenId} was already expired or revoked.`);
    return 0;
  },
});

const callPlugin = action({
  path: 'call',
  summary: 'Run an action of a running agent; PAYLOAD is JSON.',
  arguments: {
    plugin: { placeholder: 'PLUGIN' },
    action: { placeholder: 'ACTION' },
    text: { placeholder: 'PAYLOAD', isOptional: true },
  },
  options: locationOptions,
  async run({ arguments: { plugin, action: actionName, text = '{}' }, options, env, print }) {
    const payload = parsePayload(text);
    const data = readAgentData(options, env);
    const result = await callControl(agentDatabase(data).socket, 'plugins.call', {
      plugin,
      action: actionName,
      payload,
    }).catch((error: unknown) => {
      throw error instanceof Problem && error.code === 'not_ready'
        ? new Error(`No agent is running with the data folder ${data.dataDir}.`)
        : error;
    });
    print(JSON.stringify(result, null, 2));
    return 0;
  },
});

export const agentDataActions = [createToken, listTokens, revokeToken, callPlugin];

function describeToken({ tokenId, last4, name, state, expiresAt }: ListedToken): string {
  const expiry = expiresAt === null ? '' : `expires ${expiresAt}`;
  return [tokenId, `…${last4}`, name, state, expiry].join('  ').trimEnd();
}

function parsePayload(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SettingError('the payload of an action is JSON, such as \'{"path": "notes"}\'.');
  }
}

function askAgent<T>(
  data: AgentData,
  request: { name: string; input: unknown },
  work: (tokens: TokenAdmin) => Promise<T>,
): Promise<T> {
  return askServer(agentDatabase(data), request, () => withTokens(data, work));
}

async function withTokens<T>(data: AgentData, work: (tokens: TokenAdmin) => Promise<T>): Promise<T> {
  const { databaseUrl, databasePath, migrations } = agentDatabase(data);
  // Opening would create a missing database, which must not happen in a mistyped folder.
  if (databaseUrl === undefined && !existsSync(databasePath))
    throw new Error(`There is no agent's data in ${data.dataDir}; start the agent once, or set --data-dir.`);
  const { log, redactor } = stderrLog();
  const options = databaseUrl === undefined ? { path: databasePath } : { url: databaseUrl };
  const database = await connect(options, { log });
  try {
    await migrate(database, { ...migrations, log });
    const store = tokenStore(database);
    const agentId = await store.findAgent(data.name);
    if (agentId === undefined)
      throw new Error(`There is no agent "${data.name}" in this database; start it once, or set --name.`);
    return await work(tokenAdmin({ store, agentId, redactor }));
  } finally {
    await database.close();
  }
}
