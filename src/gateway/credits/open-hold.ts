// One open hold of this process: raised, checkpointed and settled once.
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { UsageFacts } from '../usage/index.ts';
import { insufficientCredits, isDatabaseUnavailable } from './allotments/problems.ts';
import { unusedFacts } from './allotments/reservation.ts';
import { checkpointTokens, clampCredits, maximumCredits } from './allotments/times.ts';
import type { Settlement } from './journal/settlements.ts';
import type { Alongside, Hold, SentAttempt } from './core/ports.ts';
import type { Verdict } from './core/store.ts';
import type { WriteBatcher } from './write-batcher.ts';

/** The functions of the ledger that a hold uses. */
export interface HoldContext {
  batcher: Pick<WriteBatcher, 'run'>;
  log: Log;
  /** Whether the lease of the hold is still renewed. */
  isTracked(holdId: string): boolean;
  /** Requests a renewal of leases before the next interval. */
  renewSoon(): void;
  /** Called when the database has settled the hold. */
  onSettled(holdId: string, credits: bigint, verdict: Verdict): void;
  /** Writes a settlement to the journal. Rejects with 503 when that fails too. */
  writeToJournal(settlement: Settlement): Promise<void>;
}

export interface Checkpoint {
  credits: bigint;
  facts: Partial<UsageFacts>;
}

export class OpenHold implements Hold {
  readonly holdId: string;
  renewedAtMs: number;
  /** The latest checkpoint, when it is not in the database yet. */
  newCheckpoint: Checkpoint | null = null;
  readonly #context: HoldContext;
  readonly #accountId: string;
  readonly #action: string;
  #amount: bigint;
  #settling: Promise<{ charged: bigint }> | undefined;
  #checkpointedTokens = 0;

  constructor(
    context: HoldContext,
    init: { holdId: string; accountId: string; action: string; amount: bigint; renewedAtMs: number },
  ) {
    this.#context = context;
    this.holdId = init.holdId;
    this.#accountId = init.accountId;
    this.#action = init.action;
    this.#amount = init.amount;
    this.renewedAtMs = init.renewedAtMs;
  }

  get amount(): bigint {
    return this.#amount;
  }

  async raise(newAmount: bigint): Promise<void> {
    if (newAmount <= this.#amount) return;
    const { verdict, amount: grantedAmount } = await this.#context.batcher.run({
      kind: 'raise',
      holdId: this.holdId,
      accountId: this.#accountId,
      amount: clampCredits(newAmount),
    });
    if (verdict === 'short') throw insufficientCredits(newAmount, grantedAmount);
    if (verdict !== 'raised')
      throw new Problem(
        'unavailable',
        'database_unavailable',
        'The hold of this call has already ended; try again.',
        { headers: { 'retry-after': '2' } },
      );
    this.#amount = grantedAmount;
  }

  checkpoint(credits: bigint, facts: Partial<UsageFacts>, outputTokens: number): void {
    if (!this.#addCheckpoint(credits, facts)) return;
    if (outputTokens - this.#checkpointedTokens < checkpointTokens) return;
    this.#checkpointedTokens = outputTokens;
    this.#context.renewSoon();
  }

  /**
   * The row is marked as sent already, by `hold` or `resume`. The next renewal of leases writes the price of
   * the input as a checkpoint.
   */
  markSent({ inputCredits, facts }: SentAttempt): void {
    if (inputCredits > 0n) this.#addCheckpoint(inputCredits, facts);
  }

  settle(credits: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }> {
    this.#settling ??= this.#settle(credits, facts, alongside).catch((error: unknown) => {
      this.#settling = undefined;
      throw error;
    });
    return this.#settling;
  }

  release(): void {
    if (this.#settling !== undefined) return;
    const facts = unusedFacts({ action: this.#action, model: null, provider: null });
    this.settle(0n, facts).catch((error: unknown) => {
      this.#context.log.warn(
        { err: error, hold_id: this.holdId },
        'a hold could not be released; its credits stay held until it is resolved',
      );
    });
  }

  async #settle(price: bigint, facts: UsageFacts, alongside?: Alongside): Promise<{ charged: bigint }> {
    const { batcher, onSettled, writeToJournal } = this.#context;
    const { holdId } = this;
    const credits = this.#clampPrice(price);
    const work = alongside !== undefined && 'work' in alongside ? alongside.work : undefined;
    const answer = alongside !== undefined && 'answer' in alongside ? alongside.answer() : null;
    const settlement: Settlement = {
      kind: 'settle',
      holdId,
      accountId: this.#accountId,
      credits,
      facts,
      answer,
      isHeldOnly: false,
    };
    try {
      const verdict = await batcher.run(settlement, work);
      onSettled(holdId, credits, verdict);
      return { charged: verdict.amount };
    } catch (error) {
      if (!isDatabaseUnavailable(error)) throw error;
      // The hold stays tracked, so its lease is renewed until the journal is replayed. Otherwise
      // recovery could resolve it first.
      await writeToJournal({ ...settlement, isHeldOnly: work !== undefined });
      return { charged: credits < this.#amount ? credits : this.#amount };
    }
  }

  /** False, without effect, for a hold that is settled. */
  #addCheckpoint(credits: bigint, facts: Partial<UsageFacts>): boolean {
    if (!this.#context.isTracked(this.holdId) || this.#settling !== undefined) return false;
    this.newCheckpoint = {
      credits: this.#clampPrice(credits),
      facts: { ...this.newCheckpoint?.facts, ...facts },
    };
    return true;
  }

  #clampPrice(credits: bigint): bigint {
    if (credits >= 0n && credits <= maximumCredits) return credits;
    this.#context.log.error({ hold_id: this.holdId, credits: String(credits) }, 'a price is out of bounds');
    return clampCredits(credits);
  }
}
