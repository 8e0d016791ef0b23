// Checks which model providers can be called: the keys, endpoints and credentials of the built-in ones and of
// those in the models file.
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import {
  curatedModels,
  hasUsableKey,
  keyEnvs,
  missingKeys,
  type ProviderKeys,
} from '../../gateway/ai/index.ts';
import type { CommandContext } from '../command-line/command.ts';
import { fail, ok, warn, type Finding } from './finding.ts';

type Provider = ProviderKeys & { id: string };

interface KeySources {
  env: CommandContext['env'];
  /** Variables that an administrator has stored. */
  storedKeys: readonly string[];
}

export async function checkProviderKeys(
  modelsFile: string | undefined,
  { env, storedKeys }: KeySources,
): Promise<Finding> {
  const variables = {
    get: (name: string) => env[name] || (storedKeys.includes(name) ? 'stored' : undefined),
  };
  try {
    return describeProviders(await readProviders(modelsFile), variables);
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

/** Throws for a provider that is not of the file's form. */
function describeProviders(
  ownProviders: readonly Provider[],
  variables: { get(name: string): string | undefined },
): Finding {
  const unusable = ownProviders.filter((provider) => !hasUsableKey(provider, variables));
  if (unusable.length > 0)
    return warn(
      'providers',
      `${unusable.map((provider) => `${provider.id}: ${missingKeys(provider, variables)}`).join('; ')}.`,
      'Set them here or with env/upsert; models of these providers cannot be called before.',
    );
  const names = [...curatedModels().providers, ...ownProviders].flatMap((provider) => keyEnvs(provider));
  const presentNames = [...new Set(names)].filter((name) => (variables.get(name) ?? '') !== '').sort();
  if (presentNames.length === 0)
    return warn(
      'providers',
      'No model provider has a key; the local models need none.',
      'Set one, such as OPENAI_API_KEY, here or with env/upsert; then: townhall models check',
    );
  return ok(
    'providers',
    `${presentNames.join(', ')} ${presentNames.length === 1 ? 'is' : 'are'} set; "townhall models check" calls them.`,
  );
}
