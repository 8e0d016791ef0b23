// Asks providers for the state of pending payments, because webhooks can be lost: every ten
// minutes, up to seven days after the payment was created.
import { pause } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Jobs } from '../../kernel/data/jobs.ts';
import type { Log } from '../../kernel/log.ts';
import { systemOrigin } from '../identity.ts';
import type { ApplyEvent } from './apply-event.ts';
import type { PaymentOrder, ProviderId } from './orders/order.ts';
import type { PaymentProvider } from './providers/provider.ts';
import type { PaymentsStore } from './store.ts';

export interface Reconciler {
  /** Polls one batch of pending payments; resolves with the number of payments that changed. */
  poll(signal?: AbortSignal): Promise<number>;
  /**
   * Starts polling. The queue makes sure that only one replica polls at a time; null in a single
   * process.
   */
  start(queue: Pick<Jobs, 'define' | 'schedule'> | null): void;
  close(): Promise<void>;
}

// Not named after the function `poll`: existing databases have schedules with this name.
const jobName = 'payments-look';
const pollEveryMs = 10 * 60_000;
/** `pollEveryMs` as a cron expression, for the queue. */
const pollCron = '*/10 * * * *';
// A job expires before the next job is due.
const expireSeconds = 540;
// A provider answers within about 200 ms, so a batch takes about a minute.
const maxPerBatch = 300;

interface ReconcilerOptions {
  store: Pick<PaymentsStore, 'claimPending'>;
  providers: ReadonlyMap<ProviderId, PaymentProvider>;
  applyEvent: ApplyEvent;
  clock: Pick<Clock, 'now' | 'sleep'>;
  log: Log;
}

export function createReconciler(options: ReconcilerOptions): Reconciler {
  const { store, clock, log } = options;
  const stop = new AbortController();
  const { signal: stopSignal } = stop;
  let polling = Promise.resolve();

  async function poll(signal?: AbortSignal): Promise<number> {
    let changedCount = 0;
    for (const order of await store.claimPending(maxPerBatch)) {
      if (signal?.aborted) break;
      if (await pollOne(options, order)) changedCount += 1;
    }
    if (changedCount > 0)
      log.info({ payments: changedCount }, 'polling found payments whose webhooks had not arrived');
    return changedCount;
  }

  async function pollForever(): Promise<void> {
    for (;;) {
      await pause(pollEveryMs, { clock, signal: stopSignal });
      if (stopSignal.aborted) return;
      await poll(stopSignal).catch((error: unknown) =>
        log.warn({ err: error }, 'pending payments could not be polled'),
      );
    }
  }

  return {
    poll,
    start(queue) {
      if (queue === null) {
        polling = pollForever();
        return;
      }
      queue.define(jobName, { retries: 0, expireSeconds }, async (_data, { signal }) => {
        await poll(signal);
      });
      queue.schedule(jobName, pollCron, {});
    },
    async close() {
      stop.abort();
      await polling;
    },
  };
}

/** Resolves with true if the payment changed. Logs errors of the provider. */
async function pollOne(
  { providers, applyEvent, clock, log }: ReconcilerOptions,
  order: PaymentOrder,
): Promise<boolean> {
  const provider = providers.get(order.provider);
  if (!provider?.isConfigured() || order.checkoutId === null) return false;
  try {
    const event = await provider.poll(order.checkoutId, clock.now());
    return event !== null && (await applyEvent(event, systemOrigin)) === 'accepted';
  } catch (error) {
    // Continue with the other payments; the next round polls this one again.
    log.warn({ err: error, paymentId: order.paymentId }, 'a provider could not be polled about a payment');
    return false;
  }
}
