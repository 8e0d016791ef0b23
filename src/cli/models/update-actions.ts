// `townhall models update` and `rollback`: replace the content of the catalog file, and show the changes
// before they are applied.
import { readFile } from 'node:fs/promises';
import {
  parseCatalogDocument,
  planUpdate,
  previousFile,
  type UpdateLimits,
  type UpdatePlan,
} from '../../gateway/ai/index.ts';
import { gatewaySettings } from '../../gateway/config.ts';
import { isMissing } from '../../kernel/file-errors.ts';
import { SettingError } from '../../kernel/settings.ts';
import { readLineFromTerminal } from '../admin/password.ts';
import { action, settingOption, type Action, type CommandContext } from '../command-line/command.ts';
import { catalogOptions, openCatalogStore, type CatalogStore } from './catalog-store.ts';
import { describePlan } from './report.ts';
import { parsePublicKey, requireSignature } from './signature.ts';
import { catalogSource, type CatalogSource } from './source.ts';

const defaultFactor = 3;

const applyOptions = {
  yes: { kind: 'switch', summary: 'Apply the changes without asking.' },
  'dry-run': { kind: 'switch', summary: 'Only show the changes.' },
} as const;

export const updateAction: Action = action({
  path: 'update',
  summary: 'Applies a signed catalog; running gateways read it at once.',
  options: {
    from: {
      kind: 'value',
      placeholder: 'FILE|URL',
      summary: 'The catalog; its signature is beside it, with .sig at the end of the name.',
    },
    'models-catalog-keys': {
      ...settingOption(gatewaySettings.modelsCatalogKeys, 'KEY'),
      isRepeatable: true,
    },
    unsigned: { kind: 'switch', summary: 'Accept a file without a signature; not for addresses.' },
    'max-factor': {
      kind: 'value',
      placeholder: 'N',
      summary: `Refuse prices that rise or fall by more than this factor (${defaultFactor}).`,
    },
    'allow-jump': {
      kind: 'value',
      placeholder: 'MODEL',
      summary: 'Accept any price of this model.',
      isRepeatable: true,
    },
    'allow-providers': {
      kind: 'switch',
      summary: 'Accept new providers, and other addresses, keys and settings of providers.',
    },
    'allow-older': { kind: 'switch', summary: 'Accept a catalog older than the applied one.' },
    ...applyOptions,
    ...catalogOptions,
  },
  async run({ options, ...context }) {
    const {
      from,
      unsigned,
      'max-factor': factorText,
      'allow-jump': models,
      'allow-providers': allowProviders,
      'allow-older': allowOlder,
      yes,
      'dry-run': isDryRun,
      json,
      ...flags
    } = options;
    if (from === undefined) throw new SettingError('--from is missing: the file or address of the catalog.');
    const store = await openCatalogStore(flags, context);
    const source = catalogSource(from);
    const next = await readNext(source, store, unsigned);
    const plan = planUpdate(
      { builtIn: store.builtIn, current: store.current, next },
      {
        maximumFactor: parseFactor(factorText),
        modelsWithAnyPrice: models?.split(',') ?? [],
        allowProviders,
        allowOlder,
      },
    );
    return applyPlan(plan, store, { yes, isDryRun, json, context });
  },
});

export const rollbackAction: Action = action({
  path: 'rollback',
  summary: 'Restores the catalog from before the last change; a second rollback undoes the first.',
  options: { ...applyOptions, ...catalogOptions },
  async run({ options: { yes, 'dry-run': isDryRun, json, ...flags }, ...context }) {
    const store = await openCatalogStore(flags, context);
    const path = previousFile(store.file);
    const { pins: _former, ...next } = parseCatalogDocument(
      await readPrevious(path),
      `The former catalog ${path}`,
      store.builtIn,
    );
    const plan = planUpdate({ builtIn: store.builtIn, current: store.current, next }, noLimits);
    return applyPlan(plan, store, { yes, isDryRun, json, context });
  },
});

/** A rollback needs no limits: its catalog passed them when it was first applied. */
const noLimits: UpdateLimits = {
  maximumFactor: Infinity,
  modelsWithAnyPrice: [],
  allowProviders: true,
  allowOlder: true,
};

async function readNext(source: CatalogSource, store: CatalogStore, isUnsigned: boolean) {
  const keys = store.config.modelsCatalogKeys.map(parsePublicKey);
  if (isUnsigned && !source.isFile)
    throw new SettingError('--unsigned is for files; a catalog from an address needs its signature.');
  if (!isUnsigned && keys.length === 0)
    throw new SettingError(
      'There is no public key to check the signature with: set MODELS_CATALOG_KEYS or --models-catalog-keys to the key of the publisher.',
    );
  const bytes = await source.readDocument();
  if (!isUnsigned) requireSignature(bytes, await source.readSignature(), keys);
  const document = parseCatalogDocument(new TextDecoder().decode(bytes), source.name, store.builtIn);
  const { pins: _pins, ...published } = document;
  return published;
}

async function readPrevious(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw new Error('There is no previous catalog: nothing has been updated yet.', { cause: error });
  }
}

function parseFactor(text: string | undefined): number {
  if (text === undefined) return defaultFactor;
  const factor = Number(text);
  if (text.trim() === '' || !(factor >= 1))
    throw new SettingError(`--max-factor takes a number of at least 1, not "${text}".`);
  return factor;
}

interface ApplyOptions {
  yes: boolean;
  isDryRun: boolean;
  json: boolean;
  context: CommandContext;
}

/** Returns the exit code: 1 when the plan is refused. */
async function applyPlan(
  plan: UpdatePlan,
  store: CatalogStore,
  { yes, isDryRun, json, context }: ApplyOptions,
): Promise<number> {
  const { changes, pins, refusals, document } = plan;
  if (!json) for (const line of describePlan(plan)) context.print(line);
  const isAllowed = refusals.length === 0 && !isDryRun;
  const isApplied = isAllowed && (yes || changes.length === 0 || (await confirmChanges(json)));
  // `amend` leaves the content for a rollback as it is: a content without changes would otherwise replace it,
  // and a rollback would restore the same models.
  if (isApplied) await (changes.length === 0 ? store.amend(document) : store.replace(document));
  if (json) context.print(JSON.stringify({ applied: isApplied, changes, pins, refusals }));
  else context.print(isApplied ? `Applied: ${store.file}` : 'Nothing was changed.');
  return refusals.length > 0 ? 1 : 0;
}

async function confirmChanges(json: boolean): Promise<boolean> {
  if (json || !process.stdin.isTTY)
    throw new SettingError('There is no terminal to ask; use --yes to apply the changes, or --dry-run.');
  return /^y(es)?$/i.test((await readLineFromTerminal('Apply these changes? [y/N] ')).trim());
}
