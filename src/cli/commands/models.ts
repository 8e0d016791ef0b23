// `townhall models check`: calls each configured provider once and says what is wrong. A running local edition does it
// itself, asked through the control socket, since it alone can read the keys that are stored; otherwise the command
// opens the database, where there is one.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ProviderCheck } from '../../gateway/ai/index.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import { gatewayPlace, hasDatabase } from '../data/database-location.ts';
import { askRunning, withGateway } from '../data/running-gateway.ts';

export const modelsCommand: Command = {
  help: () =>
    [
      'Usage: townhall models check [OPTIONS]',
      '',
      'Calls one model of each model provider whose key is set, with a prompt of a few words, and says what is wrong.',
      'The exit code is 1 when a provider does not answer as it should. Such a call costs what a few tokens cost.',
      '',
      '  --models-file FILE     the providers and models of your own (MODELS_FILE)',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['database-path', 'models-file'],
      switches: ['json'],
    });
    if (words.length !== 1 || words[0] !== 'check')
      throw new SettingError('say "townhall models check"; see --help.');
    const own = { 'database-path': flags['database-path'], 'models-file': flags['models-file'] };
    const checks = await check(await gatewayConfigHere(own, input), input);
    if (flags['json'] === 'true') input.print(JSON.stringify(checks));
    else for (const line of linesOf(checks)) input.print(line);
    return checks.some(({ state }) => state === 'failing') ? 1 : 0;
  },
};

function linesOf(checks: readonly ProviderCheck[]): string[] {
  const asked = checks.filter(({ state }) => state !== 'not_configured');
  const idle = checks
    .filter(({ state }) => state === 'not_configured')
    .map(({ provider, message }) => `${provider} (${message.replace(/\.$/, '')})`);
  const lines = asked.map(({ provider, state, model, message, duration_ms: ms }) => {
    const subject = state === 'well' ? `${provider} is well: ${model}` : `${provider} is failing: ${model}`;
    return `${subject} ${message.replace(/\.$/, '')}${ms === null ? '' : `, after ${ms} ms`}.`;
  });
  if (asked.length === 0) lines.push('No model provider is configured; the local models need none.');
  if (idle.length > 0) lines.push(`Not configured: ${idle.join(', ')}.`);
  return lines;
}

function check(config: GatewayConfig, { env }: CommandInput): Promise<ProviderCheck[]> {
  return askRunning(config, { name: 'models.check', input: null }, async () => {
    const checkOver = (over: GatewayConfig) =>
      withGateway(over, { env, logLevel: 'silent' }, (gateway) => gateway.checkProviders());
    if (hasDatabase(gatewayPlace(config))) return checkOver(config);
    // Before the first start nothing is stored, and a look leaves nothing behind.
    const folder = await mkdtemp(join(tmpdir(), 'townhall-models-'));
    try {
      return await checkOver({ ...config, databasePath: folder });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}
