// Asks providers about payments that wait, because a webhook may be lost for good: every ten minutes, for seven days.
import type { Clock } from '../../kernel/clock.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import { systemOrigin } from '../identity.ts';
import type { Intake } from './apply-event.ts';
import type { ProviderId } from './order.ts';
import type { PaymentProvider } from './providers/provider.ts';
import type { PaymentsStore } from './store.ts';

export interface LookoutNeeds {
  store: Pick<PaymentsStore, 'claimPending'>;
  providers: ReadonlyMap<ProviderId, PaymentProvider>;
  intake: Intake;
  clock: Pick<Clock, 'now' | 'sleep'>;
  log: Log;
}

export interface Reconciler {
  /** Looks at a number of payments once; says how many had news. */
  poll(signal?: AbortSignal): Promise<number>;
  /** From now on by itself. A queue sees to it that of several replicas one does it; without, this process is alone. */
  start(queue: Pick<Jobs, 'define' | 'schedule'> | null): void;
  close(): Promise<void>;
}

const jobName = 'payments-look';
const everyMs = 10 * 60_000;
// One look takes a provider a moment; a round must not run into the next.
const mostPerRound = 300;

export function createReconciler({ store, providers, intake, clock, log }: LookoutNeeds): Reconciler {
  const stopping = new AbortController();
  let rounds = Promise.resolve();

  async function poll(signal?: AbortSignal): Promise<number> {
    let news = 0;
    for (const order of await store.claimPending(mostPerRound)) {
      if (signal?.aborted) break;
      const provider = providers.get(order.provider);
      if (!provider?.isConfigured() || order.checkoutId === null) continue;
      try {
        const event = await provider.poll(order.checkoutId, clock.now());
        if (event !== null && (await intake.take(event, systemOrigin)) === 'accepted') news += 1;
      } catch (error) {
        // The others are asked all the same, and this one again in the next round.
        log.warn({ err: error, paymentId: order.paymentId }, 'a provider could not be asked about a payment');
      }
    }
    if (news > 0) log.info({ news }, 'payments whose webhooks had not come were found by asking');
    return news;
  }

  async function rounding(): Promise<void> {
    while (!stopping.signal.aborted) {
      await clock.sleep(everyMs, stopping.signal).catch(() => undefined);
      if (stopping.signal.aborted) return;
      await poll(stopping.signal).catch((error: unknown) =>
        log.warn({ err: error }, 'payments that wait could not be looked at'),
      );
    }
  }

  return {
    poll,
    start(queue) {
      if (queue === null) {
        rounds = rounding();
        return;
      }
      queue.define(jobName, { retries: 0, expireSeconds: 540 }, async (_data, { signal }) => {
        await poll(signal);
      });
      queue.schedule(jobName, '*/10 * * * *', {});
    },
    async close() {
      stopping.abort();
      await rounds;
    },
  };
}
