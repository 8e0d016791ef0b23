// What is done beside an agent rather than by running it: `townhall agent token …` and `townhall agent call`. A running
// agent is asked through its control socket; without one the command opens the data itself.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readAgentData, type AgentData } from '../../agent/config.ts';
import { controlPath } from '../../agent/control/index.ts';
import {
  tokenDesk,
  tokenStore,
  type IssuedAgentToken,
  type ListedToken,
  type TokenDesk,
} from '../../agent/tokens/index.ts';
import { assetPath } from '../../kernel/assets.ts';
import { callControl } from '../../kernel/control.ts';
import { connect, migrate } from '../../kernel/data/database.ts';
import { createLog } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { CommandInput } from '../command-line/command.ts';
import { readTtl } from '../command-line/duration.ts';

export const agentToolsHelp = [
  '       townhall agent token create [NAME] [--ttl 90d] [--json]',
  '                                         makes a further token and shows it this once',
  '       townhall agent token list [--json]',
  '       townhall agent token revoke ID [--json]',
  '       townhall agent call PLUGIN ACTION [PAYLOAD]',
  '                                         runs an action of a running agent; the payload is JSON',
  '                                         These take --data-dir, --database-url and --name as the agent does.',
];

const places = ['data-dir', 'database-url', 'name'];

/** Runs with the words behind `townhall agent`, the first of which is `token`. */
export async function runAgentToken(input: CommandInput): Promise<number> {
  const { flags, words } = parseFlags(input.arguments, { flags: [...places, 'ttl'], switches: ['json'] });
  const [, action, word, ...surplus] = words;
  const data = readAgentData(pick(flags), input.env);
  const asJson = flags['json'] === 'true';
  if (surplus.length > 0) throw usage();

  if (action === 'create') {
    const ttlSeconds = flags['ttl'] === undefined ? undefined : readTtl(flags['ttl']);
    const request = { name: word ?? 'command-line', ...(ttlSeconds === undefined ? {} : { ttlSeconds }) };
    const made: IssuedAgentToken = await ask(data, { name: 'tokens.create', input: request }, (desk) =>
      desk.create(request),
    );
    if (asJson) input.print(JSON.stringify(made));
    else {
      input.print(made.token);
      input.complain(
        `This token is shown once. Its id is ${made.tokenId}; ${made.expiresAt === null ? 'it lives until it is revoked' : `it expires ${made.expiresAt}`}.`,
      );
    }
    return 0;
  }
  if (flags['ttl'] !== undefined) throw new SettingError('--ttl belongs to "townhall agent token create".');
  if (action === 'list' && word === undefined) {
    const tokens: ListedToken[] = await ask(data, { name: 'tokens.list', input: null }, (desk) =>
      desk.list(),
    );
    if (asJson) input.print(JSON.stringify({ items: tokens }));
    else
      for (const { tokenId, name, last4, state, expiresAt } of tokens)
        input.print(
          [tokenId, `…${last4}`, name, state, expiresAt === null ? '' : `expires ${expiresAt}`]
            .join('  ')
            .trimEnd(),
        );
    return 0;
  }
  if (action === 'revoke' && word !== undefined) {
    const { revoked } = await ask(data, { name: 'tokens.revoke', input: word }, (desk) => desk.revoke(word));
    if (asJson) input.print(JSON.stringify({ tokenId: word, revoked }));
    else input.print(revoked ? `${word} is revoked.` : `${word} was dead already.`);
    return 0;
  }
  throw usage();
}

/** Runs with the words behind `townhall agent`, the first of which is `call`. */
export async function runAgentCall(input: CommandInput): Promise<number> {
  const { flags, words } = parseFlags(input.arguments, { flags: places });
  const [, plugin, action, text = '{}', ...surplus] = words;
  if (plugin === undefined || action === undefined || surplus.length > 0)
    throw new SettingError('say "townhall agent call PLUGIN ACTION [PAYLOAD]"; see --help.');
  let payload: unknown;
  try {
    payload = JSON.parse(text);
  } catch {
    throw new SettingError('the payload of an action is JSON, such as \'{"path": "notes"}\'.');
  }
  const data = readAgentData(pick(flags), input.env);
  const result = await callControl(controlPath(data.dataDir), 'plugins.call', {
    plugin,
    action,
    payload,
  }).catch((error: unknown) => {
    throw error instanceof Problem && error.code === 'not_ready'
      ? new Error(`No agent runs over the data folder ${data.dataDir}.`)
      : error;
  });
  input.print(JSON.stringify(result, null, 2));
  return 0;
}

async function ask<T>(
  data: AgentData,
  control: { name: string; input: unknown },
  otherwise: (desk: TokenDesk) => Promise<T>,
): Promise<T> {
  if (data.databaseUrl === undefined) {
    try {
      return (await callControl(controlPath(data.dataDir), control.name, control.input)) as T;
    } catch (error) {
      if (!(error instanceof Problem && error.code === 'not_ready')) throw error;
    }
  }
  return withDesk(data, otherwise);
}

async function withDesk<T>(
  { dataDir, databaseUrl, name }: AgentData,
  work: (desk: TokenDesk) => Promise<T>,
): Promise<T> {
  const redactor = createRedactor();
  const log = createLog({ level: 'warn', redactor, write: (line) => void process.stderr.write(line) });
  const path = join(dataDir, 'agent.db');
  // A command that mistakes the folder must not leave a new database in it.
  if (databaseUrl === undefined && !existsSync(path))
    throw new Error(`There is no agent's data in ${dataDir}; start the agent once, or say --data-dir.`);
  const database = await connect(databaseUrl === undefined ? { path } : { url: databaseUrl }, { log });
  try {
    await migrate(database, { schema: 'agent', directory: assetPath('src/agent/migrations'), log });
    const store = tokenStore(database);
    const agentId = await store.findAgent(name);
    if (agentId === undefined)
      throw new Error(`There is no agent "${name}" in this database; start it once, or say --name.`);
    return await work(tokenDesk({ store, agentId, redactor }));
  } finally {
    await database.close();
  }
}

function pick(flags: Readonly<Record<string, string | undefined>>): Record<string, string | undefined> {
  return Object.fromEntries(places.map((name) => [name, flags[name]]));
}

function usage(): SettingError {
  return new SettingError('say "townhall agent token create [NAME]", "list" or "revoke ID"; see --help.');
}
