// Opens the allotments of one process: its journal, its ledger in memory and their maintenance.
import type { Clock } from '../../../kernel/clock.ts';
import type { MakeId } from '../../../kernel/ids.ts';
import type { Log } from '../../../kernel/log.ts';
import type { JournalDirectory } from '../journal/journal.ts';
import { AllotmentLedger } from './allotment-ledger.ts';
import type { FindEndedTokens } from './ended-tokens.ts';
import { AllotmentMaintenance } from './maintenance.ts';
import { journalUnavailable } from '../journal/problems.ts';
import type { AllotmentStore } from './store.ts';
import { defaultAllotmentTimes, type AllotmentTimes } from './times.ts';
import { refusingJournal } from './unjournaled.ts';

export interface AllotmentsOptions {
  store: AllotmentStore;
  /** Null with `JOURNAL=off`: charges wait for the database. */
  directory: JournalDirectory | null;
  findEndedTokens: FindEndedTokens;
  clock: Clock;
  makeId: MakeId;
  log: Log;
  /** No other process has this database open. */
  isAlone: boolean;
  times?: Partial<AllotmentTimes>;
  /** Called once when the ledger was restored or recreated; these allotments take no more calls. */
  onOtherGeneration?: () => void;
}

export interface Allotments {
  readonly gatewayId: string;
  readonly ledger: AllotmentLedger;
  /**
   * Replays journals of dead processes, then starts the loops. Without it calls
   * work, but no maintenance runs.
   */
  start(): Promise<void>;
  /** Throws 503 `journal_unavailable` while no charge can be made durable in the journal. */
  requireJournal(): void;
  /** Stops the maintenance. Later charges go to the journal, which `close` closes. */
  stop(): Promise<void>;
  /** Applies pending charges, gives credits back and closes the journal. */
  close(): Promise<void>;
}

/**
 * Rejects when the database is unavailable, or with a SettingError when the
 * journal's folder is unusable.
 */
export async function openAllotments(options: AllotmentsOptions): Promise<Allotments> {
  const { store, directory, findEndedTokens, clock, makeId, log, isAlone } = options;
  const times = { ...defaultAllotmentTimes, ...options.times };
  const generation = await store.generation();
  const journal = directory === null ? refusingJournal(makeId('gwy')) : await directory.open(generation);
  const gatewayId = journal.journalId;
  try {
    await store.openJournal(gatewayId, generation);
  } catch (error) {
    // The caller opens another journal when it tries again. A folder left locked would stay until this
    // process ends.
    await journal.close();
    throw error;
  }
  const isJournaled = directory !== null;
  const ledger = new AllotmentLedger({
    store,
    journal,
    isJournaled,
    generation,
    clock,
    makeId,
    log,
    times,
    ...(options.onOtherGeneration !== undefined && { onOtherGeneration: options.onOtherGeneration }),
  });
  const maintenance = new AllotmentMaintenance({
    ledger,
    store,
    journal,
    directory,
    findEndedTokens,
    generation,
    clock,
    log,
    times,
    isAlone,
  });
  return {
    gatewayId,
    ledger,
    async start() {
      await maintenance.replay();
      maintenance.start();
    },
    requireJournal() {
      if (journal.health === 'failed') throw journalUnavailable('The journal of charges cannot be written.');
    },
    stop: () => maintenance.close(),
    async close() {
      await maintenance.close();
      await ledger.close();
    },
  };
}
