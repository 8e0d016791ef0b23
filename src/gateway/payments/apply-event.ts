// Applies provider events to payments. One transaction stores the event, updates the
// locked payment order and posts the difference between the credits that the payment
// is worth now and the credits posted so far. Deliveries that repeat, arrive on two
// replicas at once or come out of order therefore lead to the same balance.
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
} from './orders/event.ts';
import { netCredits } from './orders/facts.ts';
import type { PaymentOrder } from './orders/order.ts';
import type { PaymentsStore } from './store.ts';

export type DeliveryResult = 'accepted' | 'duplicate' | 'quarantined';

/** Resolves after the commit: a webhook must be acknowledged only when its event is stored. */
export type ApplyEvent = (event: ProviderEvent, origin: Origin) => Promise<DeliveryResult>;

interface ApplyEventOptions {
  store: PaymentsStore;
  balances: Balances;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  users: { findUser(userId: string): Promise<{ state: string } | null> };
  log: Log;
}

/** One event, with the transaction in which it is applied. */
interface Delivery extends ApplyEventOptions {
  tx: Tx;
  event: ProviderEvent;
  origin: Origin;
}

export function createApplyEvent(options: ApplyEventOptions): ApplyEvent {
  const { store } = options;
  return async (event, origin) => {
    // Look the user up before the transaction: the embedded database has one connection, which the
    // transaction would occupy.
    const userId = await store.findUserId(event);
    const isUserRemoved = userId !== null && (await isRemovedUser(userId, options));
    if (userId !== null && mayTakeBack(event)) await options.balances.recallIdle(userId);
    return store.tx(async (tx) => {
      const delivery = { ...options, tx, event, origin };
      // Lock first. A concurrent delivery about the same payment waits here, and then sees what
      // this delivery has stored.
      await store.lockReference(tx, event);
      if (!(await store.insertEvent(tx, event, serializeEvent(event)))) return 'duplicate';
      const order = await store.lockOrder(tx, event);
      if (order === null) return storeUnmatched(delivery);
      return applyToOrder(delivery, order, isUserRemoved);
    });
  };
}

async function isRemovedUser(userId: string, { users }: Pick<ApplyEventOptions, 'users'>): Promise<boolean> {
  const user = await users.findUser(userId);
  return user === null || user.state === 'removed';
}

/**
 * Whether the event is a refund or a dispute, before which idle credits are recalled. Any event of a
 * paid order that is the first to name its reference can lower the balance too, by parked refunds.
 * That is rare, and at worst the difference becomes a debt.
 */
function mayTakeBack({ fact }: ProviderEvent): boolean {
  return fact?.kind === 'refunded' || fact?.kind === 'disputed';
}

/** Parks an event without an order if its payment event can still arrive, and quarantines it otherwise. */
function storeUnmatched(delivery: Delivery): Promise<'quarantined'> {
  const { checkoutId, reference, fact } = delivery.event;
  // Refunds and disputes name only the charge. They may arrive before the payment event, which
  // connects the charge with its checkout.
  const isParked = checkoutId === null && reference !== null && fact !== null;
  return quarantine(delivery, { reason: 'unknown_payment', paymentId: null, isParked });
}

async function applyToOrder(
  delivery: Delivery,
  order: PaymentOrder,
  isUserRemoved: boolean,
): Promise<DeliveryResult> {
  const { tx, event, store } = delivery;
  const firstRecord = await recordFacts(delivery, order);
  if (firstRecord.result !== 'accepted') return firstRecord.result;
  let latestOrder = firstRecord.order;
  for (const storedEvent of await store.listParked(tx, latestOrder))
    latestOrder = (await recordFacts({ ...delivery, event: parseStoredEvent(storedEvent) }, latestOrder))
      .order;
  // A removed user has no balance to post to. The facts stay recorded, and an operator has to
  // refund the money.
  if (isUserRemoved && netCredits(latestOrder) > latestOrder.postedCredits)
    return quarantine(delivery, { reason: 'unknown_user', paymentId: latestOrder.paymentId });
  await postDifference(delivery, latestOrder, event.fact as Fact);
  return 'accepted';
}

/**
 * Records the facts of one event and its audit entry. Credits are posted once
 * afterwards, for all events together.
 */
async function recordFacts(
  delivery: Delivery,
  order: PaymentOrder,
): Promise<{ order: PaymentOrder; result: DeliveryResult }> {
  const { tx, event, store } = delivery;
  const { paymentId } = order;
  const reason =
    findMismatch(event, order) ??
    ((await store.belongsToAnotherOrder(tx, order, event)) ? 'reference' : null);
  if (reason !== null) return { order, result: await quarantine(delivery, { reason, paymentId }) };
  const key = factKey(event.fact as Fact);
  if (await store.hasAppliedFact(tx, order, key)) {
    await store.setEventOutcome(tx, event, { outcome: 'repeated', paymentId });
    return { order, result: 'duplicate' };
  }
  const updatedOrder = await store.recordFacts(tx, order, event);
  await store.setEventOutcome(tx, event, { outcome: 'applied', paymentId, factKey: key });
  await recordAudit(delivery, { action: 'payments.accepted', paymentId, diff: { fact: key } });
  return { order: updatedOrder, result: 'accepted' };
}

/**
 * Posts the difference to the balance. The ref has a number that grows under the order's lock, so
 * no difference is posted twice.
 */
async function postDifference(
  { tx, store, balances }: Delivery,
  order: PaymentOrder,
  cause: Fact,
): Promise<void> {
  const netAmount = netCredits(order);
  const difference = netAmount - order.postedCredits;
  if (difference === 0n) return;
  const entry = { userId: order.userId, ref: `${order.paymentId}/${order.postings + 1}` };
  const reason = `Payment ${order.paymentId}`;
  if (difference > 0n) {
    await balances.post(tx, { ...entry, kind: 'payment', credits: difference, reason });
  } else {
    const kind = cause.kind === 'disputed' || cause.kind === 'dispute_won' ? 'dispute' : 'refund';
    await balances.takeBack(tx, { ...entry, kind, credits: -difference, reason, partial: true });
  }
  await store.recordPosting(tx, order, netAmount);
}

/**
 * Stores the event without applying it. A quarantined event is logged as a warning, since an
 * operator should look at it. A parked event waits for its payment; the webhook's answer and the
 * audit log call it quarantined too.
 */
async function quarantine(
  delivery: Delivery,
  { reason, paymentId, isParked = false }: { reason: string; paymentId: string | null; isParked?: boolean },
): Promise<'quarantined'> {
  const { tx, event, store, log } = delivery;
  await store.setEventOutcome(tx, event, {
    outcome: isParked ? 'parked' : 'quarantined',
    reason,
    ...(paymentId === null ? {} : { paymentId }),
  });
  await recordAudit(delivery, { action: 'payments.quarantined', paymentId, diff: { reason } });
  const fields = { provider: event.provider, eventId: event.eventId, type: event.type, reason, paymentId };
  if (isParked) log.info(fields, 'a payment event waits for its payment');
  else log.warn(fields, 'an event of a payment provider was quarantined');
  return 'quarantined';
}

async function recordAudit(
  { tx, event, origin, audit }: Delivery,
  {
    action,
    paymentId,
    diff,
  }: { action: 'payments.accepted' | 'payments.quarantined'; paymentId: string | null; diff: object },
): Promise<void> {
  await audit.record(tx, {
    ...origin,
    action,
    target: paymentId === null ? null : { kind: 'payment', id: paymentId },
    outcome: action === 'payments.accepted' ? 'ok' : 'failed',
    diff: { provider: event.provider, event_id: event.eventId, type: event.type, ...diff },
  });
}
