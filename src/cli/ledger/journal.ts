// `townhall ledger journal`: journals that were put aside, as lines and as JSON.
import type { AsideJournal } from '../../gateway/credits/index.ts';
import { alignColumns } from '../command-line/columns.ts';

export function serializeJournals(journals: readonly AsideJournal[]): object {
  return {
    journals: journals.map(({ name, reason, at, generation, charges, credits, unfinished, isDamaged }) => ({
      name,
      reason,
      put_aside_at: at,
      generation,
      charges,
      credits: Number(credits),
      unfinished,
      is_damaged: isDamaged,
    })),
  };
}

const reasons: Readonly<Record<string, string>> = {
  other_generation: 'of another ledger',
  damaged: 'damaged',
  refused: 'refused lines',
};

export function describeJournals(journals: readonly AsideJournal[]): string[] {
  if (journals.length === 0) return ['No journal was put aside.'];
  const header = ['journal', 'charges', 'credits', 'unfinished', 'reason', 'put aside'];
  const rows = journals.map(({ name, charges, credits, unfinished, reason, at }) => [
    name,
    String(charges),
    credits.toLocaleString('en-US'),
    String(unfinished),
    reasons[reason] ?? reason,
    at,
  ]);
  return alignColumns([header, ...rows]);
}
