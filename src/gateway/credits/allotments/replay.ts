// Replays the journals of dead processes, then gives their allotments back.
import type { Log } from '../../../kernel/log.ts';
import type { AbandonedJournal, ChargeLine, JournalDirectory } from '../journal/journal.ts';
import { describeLine, type ApplyCounters } from './apply-loop.ts';
import { endAllotments } from './leases.ts';
import { isTransient } from './problems.ts';
import type { AllotmentStore, ApplyResult } from './store.ts';

export interface ReplayOptions {
  store: Pick<AllotmentStore, 'applyCharges' | 'appliedSeqs' | 'openJournal' | 'ofGateway' | 'giveBack'>;
  generation: string;
  log: Log;
  counters: ApplyCounters;
}

/**
 * Replays every unlocked journal of the directory. A journal that fails stays for the next round.
 */
export async function replayAbandoned(directory: JournalDirectory, options: ReplayOptions): Promise<void> {
  for (const journal of await directory.takeAbandoned()) {
    try {
      await replay(journal, options);
    } catch (error) {
      journal.unlock();
      options.log.warn(
        { err: error, journal_id: journal.journalId },
        'the journal of a dead process could not be applied yet',
      );
    }
  }
}

async function replay(journal: AbandonedJournal, options: ReplayOptions): Promise<void> {
  const { store, generation, log } = options;
  const { journalId } = journal;
  if (journal.generation !== generation) {
    log.error(
      { alarm: 'journal_of_other_generation', journal_id: journalId },
      'a journal belongs to a ledger that was restored or created anew since; its charges are put aside',
    );
    return journal.putAside('other_generation');
  }
  await store.openJournal(journalId, generation);
  const from = (await store.appliedSeqs([journalId])).get(journalId) ?? 0;
  const progress: ReplayProgress = { journalId, appliedSeq: from, refusals: 0 };
  for await (const lines of journal.charges(from)) await applyOrHalve(progress, lines, options);
  // The process is gone, so its allotments end now instead of when their leases expire.
  await endAllotments(store, await store.ofGateway(journalId));
  if (progress.refusals > 0) return journal.putAside('refused');
  const appliedSeq = (await store.appliedSeqs([journalId])).get(journalId) ?? 0;
  if (appliedSeq < progress.appliedSeq) throw new Error('The database lost charges of the journal.');
  await journal.remove();
  log.info({ journal_id: journalId, charges_to: appliedSeq }, 'applied the journal of a dead process');
}

interface ReplayProgress {
  journalId: string;
  appliedSeq: number;
  refusals: number;
}

async function applyOrHalve(
  progress: ReplayProgress,
  lines: readonly ChargeLine[],
  options: ReplayOptions,
): Promise<void> {
  const unappliedLines = lines.filter(({ seq }) => seq > progress.appliedSeq);
  const lastLine = unappliedLines.at(-1);
  if (lastLine === undefined) return;
  try {
    countResults(await send(progress, lastLine.seq, unappliedLines, options), unappliedLines, options);
  } catch (error) {
    if (isTransient(error) || error instanceof ReplayConflict) throw error;
    if (unappliedLines.length === 1) return putAside(progress, lastLine, { ...options, error });
    const middle = Math.ceil(unappliedLines.length / 2);
    await applyOrHalve(progress, unappliedLines.slice(0, middle), options);
    await applyOrHalve(progress, unappliedLines.slice(middle), options);
  }
}

async function putAside(
  progress: ReplayProgress,
  line: ChargeLine,
  { error, ...options }: ReplayOptions & { error: unknown },
): Promise<void> {
  await send(progress, line.seq, [], options);
  progress.refusals += 1;
  options.counters.linesPutAside += 1;
  options.log.error(
    { alarm: 'charge_put_aside', err: error, line: describeLine(line) },
    'the ledger refused a charge; it is not charged',
  );
}

async function send(
  progress: ReplayProgress,
  toSeq: number,
  charges: readonly ChargeLine[],
  { store, generation }: ReplayOptions,
): Promise<ApplyResult> {
  const { journalId, appliedSeq: expectedSeq } = progress;
  const result = await store.applyCharges({ journalId, generation, expectedSeq, toSeq, charges });
  if (result.outcome === 'applied' || result.outcome === 'repeated') progress.appliedSeq = result.appliedSeq;
  else throw new ReplayConflict(`The ledger answered "${result.outcome}" to the journal ${journalId}.`);
  return result;
}

function countResults(
  { results }: ApplyResult,
  lines: readonly ChargeLine[],
  { counters, log }: ReplayOptions,
): void {
  for (const { overrun, isLate } of results) {
    if (isLate) counters.lateCharges += 1;
    if (overrun === 0n) continue;
    counters.overruns += 1;
    counters.overrunCredits += overrun;
  }
  log.info({ charges: lines.length }, 'applied charges of a dead process');
}

/** A conflict that no single line causes: the whole journal waits for the next replay. */
class ReplayConflict extends Error {}
