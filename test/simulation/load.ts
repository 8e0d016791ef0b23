// Loads the ledger under test, with a planted bug where one is named: its source is
// changed while it is loaded.
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import type { LedgerModules } from './gateway.ts';
import { plantedBugs, type PlantedBug } from './planted-bugs.ts';

const root = new URL('../../', import.meta.url).href;

/**
 * Has to be called before a module under test or a model is imported. Throws when
 * there is no such bug, or when its source has changed so that it cannot be planted.
 */
export function plantBug(name: string): void {
  plant(findBug(name));
}

export async function loadLedger(): Promise<LedgerModules> {
  const folder = '../../src/gateway/credits/allotments';
  const [{ openAllotments }, { holdWithRecall }, { askReports }, { insufficientCredits }] = await Promise.all(
    [
      import(`${folder}/open-allotments.ts`) as Promise<LedgerModules>,
      import(`${folder}/hold-with-recall.ts`) as Promise<LedgerModules>,
      import(`${folder}/ask-reports.ts`) as Promise<LedgerModules>,
      import(`${folder}/problems.ts`) as Promise<LedgerModules>,
    ],
  );
  return { openAllotments, holdWithRecall, askReports, insufficientCredits };
}

function findBug(name: string): PlantedBug {
  const bug = plantedBugs.find((plantedBug) => plantedBug.name === name);
  if (bug === undefined)
    throw new Error(
      `There is no bug "${name}"; use one of: ${plantedBugs.map((planted) => planted.name).join(', ')}.`,
    );
  return bug;
}

/** Throws when a source has changed so that the bug cannot be planted. */
export function requirePlantable(bug: PlantedBug): void {
  for (const change of bug.changes)
    changedSource(bug, change, readFileSync(new URL(change.file, root), 'utf8'));
}

function plant(bug: PlantedBug): void {
  requirePlantable(bug);
  registerHooks({
    load(url, context, nextLoad) {
      const changes = bug.changes.filter(({ file }) => url === root + file);
      if (changes.length === 0) return nextLoad(url, context);
      let source = readFileSync(new URL(url), 'utf8');
      for (const change of changes) source = changedSource(bug, change, source);
      return { format: 'module-typescript', source, shortCircuit: true };
    },
  });
}

function changedSource(
  { name }: PlantedBug,
  { file, find, replace }: PlantedBug['changes'][number],
  source: string,
): string {
  if (source.split(find).length !== 2)
    throw new Error(`The bug "${name}" does not fit ${file} any more; it must have this text once: ${find}`);
  return source.replace(find, () => replace);
}
