// Two concurrent events of one payment: the second waits for the commit of the first. Runs on
// PostgreSQL only, since the embedded engine runs transactions one after the other.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Credits } from '../../../src/gateway/credits/index.ts';
import { createApplyEvent } from '../../../src/gateway/payments/apply-event.ts';
import type { ProviderEvent } from '../../../src/gateway/payments/orders/event.ts';
import { paymentsStore, type PaymentsStore } from '../../../src/gateway/payments/store.ts';
import { systemOrigin } from '../../../src/gateway/identity.ts';
import { silentLog } from '../../support/databases.ts';
import { waitForBlockedStatement } from '../../support/locks.ts';
import { startLedger, type LedgerWorld } from '../credits/world.ts';

let world: LedgerWorld;
let credits: Credits;
beforeAll(async () => {
  world = await startLedger();
  credits = world.replica();
});
afterAll(() => world?.close());

const payment = { paymentId: 'pay_1', checkoutId: 'cs_1', reference: 'pi_1' };

function event(
  overrides: Partial<ProviderEvent> & Pick<ProviderEvent, 'eventId' | 'type' | 'fact'>,
): ProviderEvent {
  return {
    provider: 'stripe',
    at: new Date(),
    isLive: false,
    checkoutId: null,
    reference: payment.reference,
    echoes: [],
    amount: null,
    currency: null,
    product: null,
    ...overrides,
  };
}

async function insertPendingPayment(store: PaymentsStore, userId: string): Promise<void> {
  await store.tx((tx) =>
    store.insert(tx, {
      paymentId: payment.paymentId,
      userId,
      bureauId: 'local',
      provider: 'stripe',
      currency: 'usd',
      amount: 1_000n,
      credits: 10_000_000n,
      product: null,
      returnTo: null,
      resultTokenDigest: Buffer.alloc(32),
    }),
  );
  await store.tx((tx) =>
    store.addCheckout(tx, payment.paymentId, {
      checkoutId: payment.checkoutId,
      checkoutUrl: 'https://checkout.stripe.test/cs_1',
      isLive: false,
    }),
  );
}

const applyEventTo = (store: PaymentsStore) =>
  createApplyEvent({
    store,
    balances: credits.balances,
    audit: { record: async () => undefined },
    users: { findUser: async () => ({ state: 'active' }) },
    log: silentLog,
  });

test('a refund that arrives while the payment is recorded is applied', async () => {
  const store = paymentsStore(world.place.database);
  const userId = await world.user(0n);
  await insertPendingPayment(store, userId);
  const [paymentRecorded, commit] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const blockingStore: PaymentsStore = {
    ...store,
    // At this point the payment is recorded and has read its parked events, but is not committed.
    async recordPosting(...input) {
      await store.recordPosting(...input);
      paymentRecorded.resolve();
      await commit.promise;
    },
  };
  const paidOutcome = applyEventTo(blockingStore)(
    event({
      eventId: 'evt_paid',
      type: 'checkout.session.completed',
      checkoutId: payment.checkoutId,
      amount: 1_000n,
      currency: 'usd',
      fact: { kind: 'paid' },
    }),
    systemOrigin,
  );
  await paymentRecorded.promise;
  const refundOutcome = applyEventTo(store)(
    event({ eventId: 'evt_refund', type: 'charge.refunded', fact: { kind: 'refunded', amount: 1_000n } }),
    systemOrigin,
  );
  // Without the lock, the refund would not wait: it would find no payment and be quarantined.
  await Promise.race([waitForBlockedStatement(world.sql), refundOutcome]);
  commit.resolve();
  expect([await paidOutcome, await refundOutcome]).toEqual(['accepted', 'accepted']);
  expect(await world.account(userId)).toEqual({ posted: 0n, held: 0n, owed: 0n });
});
