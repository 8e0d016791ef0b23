// Checks which model providers can be called: whether the built-in providers and the providers of the
// models file have their keys, endpoints and credentials. A running gateway is checked with its own
// environment; otherwise the environment of this command counts.
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import {
  curatedModels,
  hasUsableKey,
  keyEnvs,
  missingKeys,
  type ProviderKeys,
} from '../../gateway/ai/index.ts';
import type { ServerDescription } from '../../gateway/control.ts';
import type { CommandContext } from '../command-line/command.ts';
import { fail, ok, warn, type Finding } from './finding.ts';

type Provider = ProviderKeys & { id: string };

interface KeySources {
  env: CommandContext['env'];
  /** Variables that an administrator has stored. */
  storedKeys: readonly string[];
  /** The gateway that runs on the data, if any. Its environment counts, not the one of this command. */
  running: ServerDescription | undefined;
}

export async function checkProviderKeys(
  modelsFileHere: string | undefined,
  { env, storedKeys, running }: KeySources,
): Promise<Finding> {
  const names = running?.variables ?? Object.keys(env).filter((name) => env[name] !== '');
  const isSet = (name: string): boolean => names.includes(name) || storedKeys.includes(name);
  const variables = { get: (name: string) => (isSet(name) ? 'set' : undefined) };
  const modelsFile = running === undefined ? modelsFileHere : (running.modelsFile ?? undefined);
  const wording = running === undefined ? ofNextStart : ofRunningGateway;
  try {
    return describeProviders(await readProviders(modelsFile), variables, wording);
  } catch {
    return fail(
      'providers',
      `The providers of the models file ${modelsFile ?? ''} cannot be read.`,
      'Check MODELS_FILE; townhall models check shows the details.',
    );
  }
}

/** Throws for a file that cannot be read. */
async function readProviders(path: string | undefined): Promise<Provider[]> {
  if (path === undefined) return [];
  const { providers = [] } = JSON.parse(await readFile(resolve(path), 'utf8')) as { providers?: Provider[] };
  return providers;
}

interface Wording {
  place: string;
  remedy: string;
}

const storeCommand = '"townhall call gateway env.upsertVariable"';
const ofNextStart: Wording = { place: '', remedy: `here or with ${storeCommand}` };
const ofRunningGateway: Wording = {
  place: ' in the running gateway',
  remedy: `with ${storeCommand}, or before its next start`,
};

/** Throws for an entry of the models file that is not a provider. */
function describeProviders(
  ownProviders: readonly Provider[],
  variables: { get(name: string): string | undefined },
  { place, remedy }: Wording,
): Finding {
  const unusable = ownProviders.filter((provider) => !hasUsableKey(provider, variables));
  if (unusable.length > 0)
    return warn(
      'providers',
      `${unusable.map((provider) => `${provider.id}: ${missingKeys(provider, variables)}`).join('; ')}${place}.`,
      `Set them ${remedy}; until then, models of these providers cannot be called.`,
    );
  const names = [...curatedModels().providers, ...ownProviders].flatMap((provider) => keyEnvs(provider));
  const presentNames = [...new Set(names)].filter((name) => (variables.get(name) ?? '') !== '').sort();
  if (presentNames.length === 0)
    return warn(
      'providers',
      `No model provider has a key${place}; the local models need none.`,
      `Set one, such as OPENAI_API_KEY, ${remedy}; then: townhall models check`,
    );
  return ok(
    'providers',
    `${presentNames.join(', ')} ${presentNames.length === 1 ? 'is' : 'are'} set${place}; "townhall models check" calls them.`,
  );
}
