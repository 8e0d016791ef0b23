// `townhall models`: the catalog, its updates, and the check of the providers.
//
// `townhall models check` calls each configured provider once and reports failures. A running local
// edition makes the calls on request over its control socket, because it holds the database with the
// stored keys open; otherwise the command opens the database, if there is one.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ProviderCheck } from '../../gateway/ai/index.ts';
import { gatewaySettings, type GatewayConfig } from '../../gateway/config.ts';
import { resourceAction } from '../call/resource.ts';
import { action, settingOption, type Command, type CommandContext } from '../command-line/command.ts';
import { askServer, gatewayDatabase, hasDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { withGateway } from '../data/gateway.ts';
import { pinAction, unpinAction } from '../models/pin-actions.ts';
import { exportAction, keygenAction, signAction } from '../models/publish-actions.ts';
import { rollbackAction, updateAction } from '../models/update-actions.ts';

export const command: Command = {
  description: [
    'Lists the models, checks their providers, and keeps the catalog of models and prices up to date.',
    '"check" calls one model of each model provider whose key is set, with a prompt of a few words, and reports what is',
    'wrong. It exits 1 when a provider does not answer correctly. Each call costs a few tokens.',
  ],
  actions: [
    resourceAction({
      path: 'list',
      summary: 'The models that you can call at a running gateway.',
      operationId: 'ai.listModels',
      columns: ['id', 'name', 'modalities', 'context_window', 'max_output_tokens'],
    }),
    action({
      path: 'check',
      summary: 'Calls each configured provider once.',
      options: { 'models-file': settingOption(gatewaySettings.modelsFile, 'FILE'), ...dataOptions },
      async run({ options: { json, ...flags }, ...context }) {
        const checks = await checkProviders(await readConfigHere(flags, context), context);
        if (json) context.print(JSON.stringify(checks));
        else for (const line of describe(checks)) context.print(line);
        return checks.some(({ state }) => state === 'failing') ? 1 : 0;
      },
    }),
    updateAction,
    rollbackAction,
    pinAction,
    unpinAction,
    exportAction,
    keygenAction,
    signAction,
  ],
  notes: [
    '"update" accepts a catalog with an Ed25519 signature by one of MODELS_CATALOG_KEYS, shows what changes, and asks.',
    'Entries of your MODELS_FILE always win over the catalog.',
    ...dataNotes,
  ],
};

function checkProviders(config: GatewayConfig, { env }: CommandContext): Promise<ProviderCheck[]> {
  const location = gatewayDatabase(config);
  return askServer(location, { name: 'models.check', input: null }, async () => {
    const checkWith = (gatewayConfig: GatewayConfig) =>
      withGateway(gatewayConfig, { env, logLevel: 'silent' }, (gateway) => gateway.checkProviders());
    if (hasDatabase(location)) return checkWith(config);
    // Before the first start there are no stored keys. A temporary database avoids creating the real one.
    const folder = await mkdtemp(join(tmpdir(), 'townhall-models-'));
    try {
      return await checkWith({ ...config, databasePath: folder });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

function describe(checks: readonly ProviderCheck[]): string[] {
  const callResults = checks.filter(({ state }) => state !== 'not_configured');
  const unconfiguredProviders = checks.filter(({ state }) => state === 'not_configured');
  const lines = callResults.map(({ provider, key, state, model, message, duration_ms: ms }) => {
    const name = key === undefined ? provider : `${provider} (${key})`;
    const subject = state === 'well' ? `${name} is well: ${model}` : `${name} is failing: ${model}`;
    return `${subject} ${message.replace(/\.$/, '')}${ms === null ? '' : `, after ${ms} ms`}.`;
  });
  if (callResults.length === 0) lines.push('No model provider is configured; the local models need none.');
  const names = unconfiguredProviders.map(
    ({ provider, message }) => `${provider} (${message.replace(/\.$/, '')})`,
  );
  if (names.length > 0) lines.push(`Not configured: ${names.join(', ')}.`);
  return lines;
}
