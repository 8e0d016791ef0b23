// `townhall env rewrap`: puts every stored value under the newest master key while the servers serve. A running
// local edition does it itself, asked through the control socket; otherwise the command opens the database.
import type { GatewayConfig } from '../../gateway/config.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command.ts';
import type { Command, CommandInput } from '../command.ts';
import { gatewayConfigHere, hereHelp } from './here.ts';
import { gatewayPlace, requireDatabase } from './place.ts';
import { askRunning, withGateway } from '../running-server.ts';

export const envCommand: Command = {
  help: () =>
    [
      'Usage: townhall env rewrap [OPTIONS]',
      '',
      'Seals every stored value anew, under the key of TOWNHALL_MASTER_KEY. Servers go on serving meanwhile.',
      'First give the new key as TOWNHALL_MASTER_KEY and the old one as TOWNHALL_MASTER_KEY_PREVIOUS to every server,',
      'then run this once with the same two; after it the old key is not needed any more.',
      '',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, { flags: ['database-path'], switches: ['json'] });
    if (words.length !== 1 || words[0] !== 'rewrap') throw new SettingError('say "townhall env rewrap"; see --help.');
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
    const { rewrapped, kid } = await rewrap(config, input);
    if (flags['json'] === 'true') input.print(JSON.stringify({ rewrapped, kid }));
    else input.print(`${rewrapped} values were sealed anew; all are under the master key ${kid} now.`);
    return 0;
  },
};

function rewrap(config: GatewayConfig, { env }: CommandInput): Promise<{ rewrapped: number; kid: string }> {
  return askRunning(config, { name: 'env.rewrap', input: null }, () => {
    requireDatabase(gatewayPlace(config));
    return withGateway(config, { env, logLevel: 'error' }, (gateway) => gateway.rewrapEnv());
  });
}
