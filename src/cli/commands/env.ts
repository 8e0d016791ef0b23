// `townhall env rewrap` seals every stored value with the newest master key while servers run;
// `townhall env keys` lists the keys in use. A running local edition does both on request over its
// control socket; otherwise the command opens the database.
import type { GatewayConfig } from '../../gateway/config.ts';
import {
  envStore,
  readMasterKeyIds,
  findSealingKeys,
  type RewrapResult,
  type SealingKeys,
} from '../../gateway/env/index.ts';
import { action, type ActionCall, type Command, type CommandContext } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';
import { askServer, gatewayDatabase, requireDatabase, withDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { withGateway } from '../data/gateway.ts';

export const command: Command = {
  description: [
    'To change the master key, set TOWNHALL_MASTER_KEY to the new key and TOWNHALL_MASTER_KEY_PREVIOUS to the old one on',
    'every server, then run "rewrap" once with the same two keys. The servers keep running meanwhile. A running',
    'local edition must have the same keys. Before you destroy the old key, check with "keys" that no value needs it.',
  ],
  actions: [
    action({
      path: 'rewrap',
      summary: 'Seal every stored value again with the key of TOWNHALL_MASTER_KEY.',
      options: dataOptions,
      run: (call) => printReport(call, rewrap),
    }),
    action({
      path: 'keys',
      summary: 'List the ids of the master keys in use, with the number of values sealed by each.',
      options: dataOptions,
      run: (call) => printReport(call, listKeys),
    }),
  ],
  notes: dataNotes,
};

interface Report {
  result: object;
  lines: string[];
}

async function printReport(
  { options, ...context }: ActionCall<typeof dataOptions>,
  makeReport: (config: GatewayConfig, context: CommandContext) => Promise<Report>,
): Promise<number> {
  const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
  const { result, lines } = await makeReport(config, context);
  if (options.json) context.print(JSON.stringify(result));
  else for (const line of lines) context.print(line);
  return 0;
}

async function rewrap(config: GatewayConfig, { env }: CommandContext): Promise<Report> {
  const { primary } = await keyIds(config);
  const location = gatewayDatabase(config);
  const request = { name: 'env.rewrap', input: { kid: primary } };
  const { rewrapped, kid } = await askServer<RewrapResult>(location, request, () => {
    requireDatabase(location);
    return withGateway(config, { env, logLevel: 'error' }, (gateway) => gateway.rewrapEnv());
  });
  // A server of an older version may ignore the `kid` of the request and seal under its own key.
  if (kid !== primary)
    throw new Error(
      `The running server sealed under the master key ${kid}; the key of this command is ${primary ?? 'none'}. Keep the old key.`,
    );
  return {
    result: { rewrapped, kid },
    lines: [`${rewrapped} values were sealed again; all are under the master key ${kid} now.`],
  };
}

async function listKeys(config: GatewayConfig): Promise<Report> {
  const location = gatewayDatabase(config);
  const {
    current,
    keys,
    damaged,
    server = null,
  } = await askServer<SealingKeys & { server?: string | null }>(
    location,
    { name: 'env.keys', input: null },
    () => withDatabase(location, (database) => findSealingKeys(envStore(database))),
  );
  const { primary, previous } = await keyIds(config);
  const settingOf = (kid: string): string | null => {
    if (kid === primary) return 'TOWNHALL_MASTER_KEY';
    return kid === previous ? 'TOWNHALL_MASTER_KEY_PREVIOUS' : null;
  };
  const unusedKeys = [primary, previous].flatMap((kid) =>
    kid === null || keys.some((key) => key.kid === kid) ? [] : [{ kid, values: 0 }],
  );
  const rows = [...keys, ...unusedKeys].map(({ kid, values }) => ({
    kid,
    values,
    current: kid === current,
    setting: settingOf(kid),
  }));
  const lines = rows.map(({ kid, values, current: isCurrent, setting }) =>
    [
      kid,
      `${values} values`,
      ...(isCurrent ? ['current'] : []),
      ...(kid === server ? ['of the running server'] : []),
      ...(setting === null ? [] : [`given here as ${setting}`]),
    ].join('  '),
  );
  if (damaged > 0) lines.push(`${damaged} values have a damaged seal; write or remove them.`);
  return { result: { keys: rows, server, damaged }, lines };
}

/** The ids of the keys that a server with this command's settings would have. */
function keyIds(config: GatewayConfig): Promise<{ primary: string | null; previous: string | null }> {
  return readMasterKeyIds(config, {
    dataFolder: config.databaseUrl === undefined ? config.databasePath : null,
    redactor: stderrLog().redactor,
  });
}
