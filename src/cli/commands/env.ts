// `townhall env rewrap` puts every stored value under the newest master key while the servers serve; `townhall env keys`
// says which keys are in use. A running local edition is asked through its control socket; otherwise the command opens
// the database.
import type { GatewayConfig } from '../../gateway/config.ts';
import {
  envStore,
  masterKeyIds,
  sealingKeys,
  type Rewrapped,
  type SealingKeys,
} from '../../gateway/env/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import { commandLog, gatewayPlace, requireDatabase, withDatabase } from '../data/database-location.ts';
import { askRunning, withGateway } from '../data/running-gateway.ts';

export const envCommand: Command = {
  help: () =>
    [
      'Usage: townhall env rewrap [OPTIONS]   seals every stored value anew, under the key of TOWNHALL_MASTER_KEY',
      '       townhall env keys [OPTIONS]     lists the master keys in use by their ids, with the values under each',
      '',
      'First give the new key as TOWNHALL_MASTER_KEY and the old one as TOWNHALL_MASTER_KEY_PREVIOUS to every server,',
      'then run "rewrap" once with the same two; servers go on serving meanwhile. Beside a running local edition it is',
      'refused unless that server has the same key. Before you destroy the old key, let "keys" show that nothing is under it.',
      '',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, { flags: ['database-path'], switches: ['json'] });
    const [action] = words;
    if (words.length !== 1 || (action !== 'rewrap' && action !== 'keys'))
      throw new SettingError('say "townhall env rewrap" or "townhall env keys"; see --help.');
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
    const report = action === 'keys' ? await listKeys(config) : await rewrap(config, input);
    if (flags['json'] === 'true') input.print(JSON.stringify(report.result));
    else for (const line of report.lines) input.print(line);
    return 0;
  },
};

interface Report {
  result: object;
  lines: string[];
}

async function rewrap(config: GatewayConfig, { env }: CommandInput): Promise<Report> {
  const { primary } = await keyIds(config);
  const result = await askRunning<Rewrapped>(config, { name: 'env.rewrap', input: { kid: primary } }, () => {
    requireDatabase(gatewayPlace(config));
    return withGateway(config, { env, logLevel: 'error' }, (gateway) => gateway.rewrapEnv());
  });
  const { rewrapped, kid } = result;
  // A server of another version may not compare the keys.
  if (kid !== primary)
    throw new Error(
      `The running server sealed under the master key ${kid}; the key of this command is ${primary ?? 'none'}. Keep the old key.`,
    );
  return {
    result: { rewrapped, kid },
    lines: [`${rewrapped} values were sealed anew; all are under the master key ${kid} now.`],
  };
}

async function listKeys(config: GatewayConfig): Promise<Report> {
  const place = gatewayPlace(config);
  const {
    current,
    keys,
    damaged,
    server = null,
  } = await askRunning<SealingKeys & { server?: string | null }>(
    config,
    { name: 'env.keys', input: null },
    () => withDatabase(place, (database) => sealingKeys(envStore(database))),
  );
  const { primary, previous } = await keyIds(config);
  const settingOf = (kid: string): string | null =>
    kid === primary ? 'TOWNHALL_MASTER_KEY' : kid === previous ? 'TOWNHALL_MASTER_KEY_PREVIOUS' : null;
  const others = [primary, previous].flatMap((kid) =>
    kid === null || keys.some((key) => key.kid === kid) ? [] : [{ kid, values: 0 }],
  );
  const rows = [...keys, ...others].map(({ kid, values }) => ({
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

/** Of the keys that a server would have with the settings of this command. */
function keyIds(config: GatewayConfig): Promise<{ primary: string | null; previous: string | null }> {
  return masterKeyIds(config, {
    dataFolder: config.databaseUrl === undefined ? config.databasePath : null,
    redactor: commandLog().redactor,
  });
}
