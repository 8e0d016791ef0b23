// The background work of allotments: renews leases, answers recalls, gives idle
// credits back, replays journals of dead processes and takes expired allotments back.
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Journal, JournalDirectory } from '../journal/journal.ts';
import type { AllotmentLedger } from './allotment-ledger.ts';
import { closeEndedTokens, type FindEndedTokens } from './ended-tokens.ts';
import { isDatabaseUnavailable } from './problems.ts';
import { replayAbandoned } from './replay.ts';
import type { AllotmentStore } from './store.ts';
import type { AllotmentTimes } from './times.ts';

export interface AllotmentMaintenanceOptions {
  ledger: AllotmentLedger;
  store: AllotmentStore;
  journal: Journal;
  /** Null with `JOURNAL=off`. */
  directory: JournalDirectory | null;
  findEndedTokens: FindEndedTokens;
  generation: string;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  log: Log;
  times: AllotmentTimes;
  /** No other process has this database open. */
  isAlone: boolean;
}

const takeBackLimit = 200;
const alarmAgeMs = 10_000;
const alarmEveryMs = 60_000;

export class AllotmentMaintenance {
  readonly #options: AllotmentMaintenanceOptions;
  readonly #stop = new AbortController();
  #loops: Promise<void>[] = [];
  #alarmedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AllotmentMaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    const { times, isAlone, ledger } = this.#options;
    const hasAllotments = () => ledger.pool.size > 0;
    this.#loops = [
      this.#repeat(times.renewEveryMs, () => this.#renew()),
      this.#repeat(times.maintenanceEveryMs, () => this.#tidy()),
      this.#repeat(times.replayEveryMs, () => this.replay()),
    ];
    // A process that is alone has no other gateway to recall its credits or to request reports, so
    // it polls less often.
    const readRecallsEveryMs = isAlone ? times.maintenanceEveryMs : times.readRecallsEveryMs;
    this.#loops.push(
      this.#repeat(readRecallsEveryMs, async () => {
        if (hasAllotments()) await ledger.answerFlags();
      }),
    );
  }

  /**
   * Replays the journals of dead processes, and takes back expired allotments without a journal.
   */
  async replay(): Promise<void> {
    const { directory, store, generation, log, ledger, journal, times } = this.#options;
    if (directory !== null)
      await replayAbandoned(directory, { store, generation, log, counters: ledger.counters });
    const appliedSeq = (await store.appliedSeqs([journal.journalId])).get(journal.journalId);
    if (appliedSeq !== undefined) journal.markApplied(appliedSeq);
    await ledger.leases.reconcile();
    if (ledger.contact.unbrokenMs() < times.minimumContactMs) return;
    const expiredAllotments = await store.takeBackExpired(takeBackLimit);
    if (expiredAllotments.length > 0)
      log.warn({ allotments: expiredAllotments.length }, 'took back credits of gateways that have ended');
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#loops);
  }

  async #renew(): Promise<void> {
    const { ledger } = this.#options;
    if (ledger.takeLostOpening()) await ledger.leases.reconcile();
    await ledger.leases.renew();
    await ledger.checkGeneration();
    ledger.contact.recordAnswer();
  }

  async #tidy(): Promise<void> {
    const { ledger, log, clock, findEndedTokens } = this.#options;
    const { oldestMs, count } = ledger.unapplied();
    const nowMs = clock.monotonicMs();
    if (oldestMs > alarmAgeMs && nowMs - this.#alarmedAtMs >= alarmEveryMs) {
      this.#alarmedAtMs = nowMs;
      log.error(
        { alarm: 'unapplied_charges', count, oldest_ms: Math.round(oldestMs) },
        'charges wait for the database',
      );
    }
    await closeEndedTokens(ledger, findEndedTokens);
    await ledger.giveBacks.tidy();
  }

  async #repeat(everyMs: number, work: () => Promise<void>): Promise<void> {
    const { clock, log, ledger } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await clock.sleep(everyMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await work();
      } catch (error) {
        if (isDatabaseUnavailable(error)) ledger.contact.recordError();
        log.warn({ err: error }, 'maintenance of allotments failed; retrying');
      }
    }
  }
}
