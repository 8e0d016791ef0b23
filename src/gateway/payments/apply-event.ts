// Takes in what providers say. One transaction holds the event, the payment under its lock, and the ledger: the event
// is on record for ever, the facts of the payment grow, and the ledger is told the difference between the credits that
// should be there now and those that it was told before. Whatever comes twice, or at once on two replicas, or in
// another order, ends in the same balance.
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Balances } from '../credits/index.ts';
import type { Origin } from '../identity.ts';
import {
  factKey,
  findMismatch,
  serializeEvent,
  type Fact,
  type ProviderEvent,
  parseStoredEvent,
} from './event.ts';
import { netCredits } from './facts.ts';
import type { PaymentOrder } from './order.ts';
import type { PaymentsStore } from './store.ts';

export type DeliveryResult = 'accepted' | 'duplicate' | 'quarantined';

export interface IntakeNeeds {
  store: PaymentsStore;
  balances: Balances;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  users: { findUser(userId: string): Promise<{ state: string } | null> };
  log: Log;
}

export interface Intake {
  /** Resolves after the commit, so that whoever sent the event may forget it. */
  take(event: ProviderEvent, origin: Origin): Promise<DeliveryResult>;
}

export function createIntake({ store, balances, audit, users, log }: IntakeNeeds): Intake {
  async function record(
    tx: Tx,
    event: ProviderEvent,
    what: { origin: Origin; action: string; paymentId: string | null; diff?: object },
  ): Promise<void> {
    await audit.record(tx, {
      ...what.origin,
      action: what.action,
      target: what.paymentId === null ? null : { kind: 'payment', id: what.paymentId },
      outcome: what.action === 'payments.accepted' ? 'ok' : 'failed',
      diff: { provider: event.provider, event_id: event.eventId, type: event.type, ...what.diff },
    });
  }

  /** Puts the event aside: nothing follows from it, and somebody should look. */
  async function quarantine(
    tx: Tx,
    event: ProviderEvent,
    why: { origin: Origin; reason: string; paymentId: string | null; isParked?: boolean },
  ): Promise<'quarantined'> {
    const { origin, reason, paymentId, isParked = false } = why;
    await store.setEventOutcome(tx, event, {
      outcome: isParked ? 'parked' : 'quarantined',
      reason,
      ...(paymentId === null ? {} : { paymentId }),
    });
    await record(tx, event, { origin, action: 'payments.quarantined', paymentId, diff: { reason } });
    log.warn(
      { provider: event.provider, eventId: event.eventId, type: event.type, reason, paymentId },
      'an event of a payment provider was put aside',
    );
    return 'quarantined';
  }

  /** The facts of one event, with its own entry in the audit log; the ledger is told afterwards, once for all. */
  async function learn(
    tx: Tx,
    order: PaymentOrder,
    event: ProviderEvent,
    origin: Origin,
  ): Promise<{ order: PaymentOrder; taken: DeliveryResult }> {
    const { paymentId } = order;
    const mismatch = findMismatch(event, order);
    if (mismatch !== null)
      return { order, taken: await quarantine(tx, event, { origin, reason: mismatch, paymentId }) };
    if (await store.belongsToAnotherOrder(tx, order, event))
      return { order, taken: await quarantine(tx, event, { origin, reason: 'reference', paymentId }) };
    const key = factKey(event.fact as Fact);
    if (await store.hasAppliedFact(tx, order, key)) {
      await store.setEventOutcome(tx, event, { outcome: 'repeated', paymentId });
      return { order, taken: 'duplicate' };
    }
    const known = await store.recordFacts(tx, order, event);
    await store.setEventOutcome(tx, event, { outcome: 'applied', paymentId, factKey: key });
    await record(tx, event, { origin, action: 'payments.accepted', paymentId, diff: { fact: key } });
    return { order: known, taken: 'accepted' };
  }

  /** Tells the ledger the difference. Its ref counts up under the lock of the order, so that no step is told twice. */
  async function settle(tx: Tx, order: PaymentOrder, cause: Fact): Promise<void> {
    const net = netCredits(order);
    const difference = net - order.postedCredits;
    if (difference === 0n) return;
    const entry = { userId: order.userId, ref: `${order.paymentId}/${order.postings + 1}` };
    const reason = `Payment ${order.paymentId}`;
    if (difference > 0n) {
      await balances.post(tx, { ...entry, kind: 'payment', credits: difference, reason });
    } else {
      const kind = cause.kind === 'disputed' || cause.kind === 'dispute_won' ? 'dispute' : 'refund';
      await balances.takeBack(tx, { ...entry, kind, credits: -difference, reason, partial: true });
    }
    await store.recordPosting(tx, order, net);
  }

  /** Whether the user was removed since the payment was made. Asked before the transaction, which has one connection. */
  async function hasNoUser(event: ProviderEvent): Promise<boolean> {
    const userId = await store.findUserId(event);
    const user = userId === null ? null : await users.findUser(userId);
    return userId !== null && (user === null || user.state === 'removed');
  }

  async function takeIn(
    tx: Tx,
    event: ProviderEvent,
    { origin, isOrphan }: { origin: Origin; isOrphan: boolean },
  ): Promise<DeliveryResult> {
    // Before anything else: whoever comes second waits here or below, and then sees what the first has done.
    await store.lockReference(tx, event);
    if (!(await store.insertEvent(tx, event, serializeEvent(event)))) return 'duplicate';
    const found = await store.lockOrder(tx, event);
    if (found === null) {
      // A charge may be refunded or disputed before we heard that it was made; then it waits for that.
      const isParked = event.checkoutId === null && event.reference !== null && event.fact !== null;
      return quarantine(tx, event, { origin, reason: 'unknown_payment', paymentId: null, isParked });
    }
    const { order, taken } = await learn(tx, found, event, origin);
    if (taken !== 'accepted') return taken;
    let latest = order;
    for (const packed of await store.listParked(tx, order))
      latest = (await learn(tx, latest, parseStoredEvent(packed), origin)).order;
    // Credits for nobody: what is known of the payment stays, and somebody has to give the money back.
    if (isOrphan && netCredits(latest) > latest.postedCredits)
      return quarantine(tx, event, { origin, reason: 'unknown_user', paymentId: latest.paymentId });
    await settle(tx, latest, event.fact as Fact);
    return 'accepted';
  }

  return {
    async take(event, origin) {
      const isOrphan = await hasNoUser(event);
      return store.tx((tx) => takeIn(tx, event, { origin, isOrphan }));
    },
  };
}
