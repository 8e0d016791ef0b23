// An exact hold in the database that may need idle credits of allotments: this
// process gives its own idle credits back at once and recalls those of the other gateways.
import type { Clock } from '../../../kernel/clock.ts';
import type { MakeId } from '../../../kernel/ids.ts';
import type { Allotments } from './open-allotments.ts';
import { creditsBusy, isInsufficient } from './problems.ts';
import type { AllotmentStore } from './store.ts';
import type { AllotmentTimes } from './times.ts';

export interface HoldRecallOptions {
  allotments: Pick<Allotments, 'gatewayId' | 'ledger'>;
  store: Pick<AllotmentStore, 'affordable' | 'recall'>;
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>;
  makeId: MakeId;
  times: Pick<AllotmentTimes, 'recallMs' | 'recallPollMs'>;
}

/**
 * Repeats `write` until there are enough credits. Throws its 402 when all idle credits of the
 * account together are too few, and 503 `credits_busy` when other gateways give none back within a
 * second.
 */
export async function holdWithRecall<T>(
  { userId, tokenId, amount }: { userId: string; tokenId: string; amount: bigint },
  write: () => Promise<T>,
  options: HoldRecallOptions,
): Promise<T> {
  const { allotments, store, clock, times } = options;
  const { gatewayId, ledger } = allotments;
  const startedMs = clock.monotonicMs();
  let ticket: string | undefined;
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (!isInsufficient(error)) throw error;
      if (ledger.idle(userId) > 0n) {
        await ledger.giveBacks.ofUser(userId);
        continue;
      }
      const { available, idleElsewhere } = await store.affordable({ gatewayId, userId, tokenId, ticket });
      if (available + idleElsewhere < amount) throw error;
      if (clock.monotonicMs() - startedMs >= times.recallMs) {
        ledger.counters.busy += 1;
        throw creditsBusy('Other gateways hold the credits of this account; try again.', error);
      }
      ticket ??= await recall(options, { userId, tokenId, need: amount });
    }
    await clock.sleep(times.recallPollMs);
  }
}

async function recall(
  { allotments, store, makeId }: HoldRecallOptions,
  { userId, tokenId, need }: { userId: string; tokenId: string; need: bigint },
): Promise<string> {
  const ticket = makeId('tkt');
  allotments.ledger.counters.recalls += 1;
  await store.recall({ ticket, gatewayId: allotments.gatewayId, userId, tokenId, need });
  return ticket;
}
