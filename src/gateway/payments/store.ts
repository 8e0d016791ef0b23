// SQL of the payments tables. Facts are merged with least(), greatest() and
// coalesce(), so repeated or reordered events lead to the same row.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';
import type { ProviderEvent } from './orders/event.ts';
import type { Dispute } from './orders/facts.ts';
import type { Checkout, NewOrder, PaymentOrder } from './orders/order.ts';

export type StoredOutcome = 'applied' | 'repeated' | 'parked' | 'quarantined';

export interface PaymentsStore extends OrderQueries, EventQueries {
  tx<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
}

interface OrderQueries {
  insert(tx: Tx, order: NewOrder): Promise<void>;
  find(paymentId: string): Promise<PaymentOrder | null>;
  /** The order whose result pages have the token with this digest. */
  findByResultToken(digest: Buffer): Promise<PaymentOrder | null>;
  /** Newest first; `before` is a payment ID. */
  list(filter: {
    userId: string | null;
    bureauId: string | null;
    before: string | null;
    count: number;
  }): Promise<PaymentOrder[]>;
  /** Counts the user's pending payments of the last day. */
  countPending(userId: string): Promise<number>;
  addCheckout(tx: Tx, paymentId: string, checkout: Checkout): Promise<PaymentOrder>;
  fail(paymentId: string): Promise<void>;
  /** Pending payments of the last seven days, least recently polled first. Marks them as polled now. */
  claimPending(count: number): Promise<PaymentOrder[]>;
}

/** An event is about the order with its checkout ID or, in events without one, with its reference. */
interface EventQueries {
  /** The user of the event's order, without a lock; null without an order. */
  findUserId(event: ProviderEvent): Promise<string | null>;
  /**
   * Makes other transactions with events of the same reference wait until this transaction ends,
   * even if there is no order to lock.
   */
  lockReference(tx: Tx, event: ProviderEvent): Promise<void>;
  /** False when the event was stored before. */
  insertEvent(tx: Tx, event: ProviderEvent, storedEvent: Record<string, unknown>): Promise<boolean>;
  /** The event's order, locked for update; null when there is none. */
  lockOrder(tx: Tx, event: ProviderEvent): Promise<PaymentOrder | null>;
  /** Whether an event with the same fact was applied to the order before. */
  hasAppliedFact(tx: Tx, order: PaymentOrder, factKey: string): Promise<boolean>;
  /** Whether the event's reference or dispute is already recorded for another order. */
  belongsToAnotherOrder(tx: Tx, order: PaymentOrder, event: ProviderEvent): Promise<boolean>;
  /** Merges the event's fact into the order. */
  recordFacts(tx: Tx, order: PaymentOrder, event: ProviderEvent): Promise<PaymentOrder>;
  setEventOutcome(
    tx: Tx,
    event: ProviderEvent,
    result: { outcome: StoredOutcome; reason?: string; paymentId?: string; factKey?: string },
  ): Promise<void>;
  /** Parked events with the order's reference, in the order of arrival. */
  listParked(tx: Tx, order: PaymentOrder): Promise<Record<string, unknown>[]>;
  /** Stores the credits posted so far and counts the posting. */
  recordPosting(tx: Tx, order: PaymentOrder, postedCredits: bigint): Promise<void>;
}

export function paymentsStore(database: Database): PaymentsStore {
  return {
    tx: (work) => database.tx(work),
    ...orderQueries(database.sql),
    ...eventQueries(database.sql),
  };
}

function orderQueries(sql: Sql): OrderQueries {
  return {
    async insert(tx, order) {
      await tx`
        insert into gateway.payments_orders
          (payment_id, user_id, bureau_id, provider, currency, amount, credits, product, return_to, ticket_digest)
        values (${order.paymentId}, ${order.userId}, ${order.bureauId}, ${order.provider}, ${order.currency},
          ${order.amount}, ${order.credits}, ${order.product}, ${order.returnTo}, ${order.resultTokenDigest})`;
    },
    find: (paymentId) => findOrder(sql, sql`o.payment_id = ${paymentId}`),
    findByResultToken: (digest) => findOrder(sql, sql`o.ticket_digest = ${digest}`),
    async list({ userId, bureauId, before, count }) {
      const rows = await sql<OrderRow[]>`
        select ${columns(sql)} from gateway.payments_orders o
        where ${userId === null ? sql`true` : sql`o.user_id = ${userId}`}
          and ${bureauId === null ? sql`true` : sql`o.bureau_id = ${bureauId}`}
          -- IDs sort by creation time.
          and ${before === null ? sql`true` : sql`o.payment_id < ${before}`}
        order by o.payment_id desc limit ${count}`;
      return addDisputes(sql, rows);
    },
    async countPending(userId) {
      const [row] = await sql<{ pending: bigint }[]>`
        select count(*) as pending from gateway.payments_orders
        where user_id = ${userId} and ${isPending(sql)}
          and created_at > gateway.townhall_now() - interval '1 day'`;
      return Number(row?.pending ?? 0n);
    },
    async addCheckout(tx, paymentId, { checkoutId, checkoutUrl, isLive }) {
      await tx`
        update gateway.payments_orders
        set checkout_id = ${checkoutId}, checkout_url = ${checkoutUrl}, is_live = ${isLive}
        where payment_id = ${paymentId}`;
      return requireOrder(await findOrder(tx, tx`o.payment_id = ${paymentId}`));
    },
    async fail(paymentId) {
      await sql`
        update gateway.payments_orders set failed_at = coalesce(failed_at, gateway.townhall_now())
        where payment_id = ${paymentId}`;
    },
    async claimPending(count) {
      const rows = await sql<OrderRow[]>`
        update gateway.payments_orders o set looked_at = gateway.townhall_now()
        where o.payment_id in (
          select payment_id from gateway.payments_orders
          where ${isPending(sql)}
            and checkout_id is not null and created_at > gateway.townhall_now() - interval '7 days'
          order by looked_at nulls first, created_at limit ${count} for update skip locked)
        returning ${columns(sql)}`;
      return addDisputes(sql, rows);
    },
  };
}

function eventQueries(sql: Sql): EventQueries {
  return { ...deliveryQueries(sql), ...factQueries() };
}

/** Stores an event, and finds and locks its order. */
function deliveryQueries(
  sql: Sql,
): Pick<
  EventQueries,
  'findUserId' | 'lockReference' | 'insertEvent' | 'lockOrder' | 'setEventOutcome' | 'listParked'
> {
  return {
    async findUserId({ provider, checkoutId, reference, echoes }) {
      // The same order as `lockOrder` finds.
      const [paymentId = null] = echoes;
      const condition =
        checkoutId === null
          ? sql`reference = ${reference}`
          : sql`(checkout_id = ${checkoutId} or (checkout_id is null and payment_id = ${paymentId}))`;
      const [row] = await sql<{ userId: string }[]>`
        select user_id as "userId" from gateway.payments_orders
        where provider = ${provider} and ${condition}
        order by checkout_id nulls last limit 1`;
      return row?.userId ?? null;
    },
    async lockReference(tx, { provider, reference }) {
      if (reference === null) return;
      // An advisory lock, because an event without an order has no row to lock, and the payment
      // event that names its order may be arriving at the same time.
      await tx`select pg_advisory_xact_lock(hashtextextended(${`townhall.payments.${provider}.${reference}`}, 0))`;
    },
    async insertEvent(tx, event, storedEvent) {
      const rows = await tx`
        insert into gateway.payments_events (provider, event_id, type, outcome, reference, event)
        values (${event.provider}, ${event.eventId}, ${event.type}, 'quarantined', ${event.reference},
          ${tx.json(storedEvent as never)})
        on conflict (provider, event_id) do nothing returning 1`;
      return rows.length > 0;
    },
    async lockOrder(tx, { provider, checkoutId, reference, echoes }) {
      const find = (condition: Fragment) =>
        findOrder(tx, tx`o.provider = ${provider} and ${condition}`, { lock: true });
      if (checkoutId === null) return reference === null ? null : find(tx`o.reference = ${reference}`);
      const order = await find(tx`o.checkout_id = ${checkoutId}`);
      if (order !== null) return order;
      // The process may have died after the provider created the checkout and before its ID was stored.
      const [paymentId] = echoes;
      return paymentId === undefined ? null : find(tx`o.payment_id = ${paymentId} and o.checkout_id is null`);
    },
    async setEventOutcome(tx, { provider, eventId }, { outcome, reason, paymentId, factKey }) {
      await tx`
        update gateway.payments_events
        set outcome = ${outcome}, reason = ${reason ?? null}, payment_id = ${paymentId ?? null},
          fact_key = ${factKey ?? null}
        where provider = ${provider} and event_id = ${eventId}`;
    },
    async listParked(tx, { provider, reference }) {
      if (reference === null) return [];
      const rows = await tx<{ event: Record<string, unknown> }[]>`
        select event from gateway.payments_events
        where provider = ${provider} and reference = ${reference} and outcome = 'parked'
        order by received_at, event_id`;
      return rows.map(({ event }) => event);
    },
  };
}

/** Records facts and postings of an order that the transaction has locked. */
function factQueries(): Pick<
  EventQueries,
  'hasAppliedFact' | 'belongsToAnotherOrder' | 'recordFacts' | 'recordPosting'
> {
  return {
    async hasAppliedFact(tx, { provider, paymentId }, key) {
      const rows = await tx`
        select 1 from gateway.payments_events
        where provider = ${provider} and payment_id = ${paymentId} and fact_key = ${key}
          and outcome = 'applied'`;
      return rows.length > 0;
    },
    async belongsToAnotherOrder(tx, { provider, paymentId }, { reference, fact }) {
      const disputeId = fact !== null && 'disputeId' in fact ? fact.disputeId : null;
      const rows = await tx`
        select 1 from gateway.payments_orders
        where provider = ${provider} and reference = ${reference} and payment_id <> ${paymentId}
        union all
        select 1 from gateway.payments_disputes
        where provider = ${provider} and dispute_id = ${disputeId} and payment_id <> ${paymentId}`;
      return rows.length > 0;
    },
    async recordFacts(tx, { paymentId }, event) {
      const { fact, at } = event;
      await mergeDispute(tx, paymentId, event);
      const timeOf = (kind: string): Date | null => (fact?.kind === kind ? at : null);
      const refundedAmount = fact?.kind === 'refunded' ? fact.amount : 0n;
      await tx`
        update gateway.payments_orders set
          paid_at = least(paid_at, ${timeOf('paid')}::timestamptz),
          expired_at = least(expired_at, ${timeOf('expired')}::timestamptz),
          failed_at = least(failed_at, ${timeOf('failed')}::timestamptz),
          canceled_at = least(canceled_at, ${timeOf('canceled')}::timestamptz),
          refunded_amount = greatest(refunded_amount, ${refundedAmount}::bigint),
          reference = coalesce(reference, ${event.reference}),
          checkout_id = coalesce(checkout_id, ${event.checkoutId}),
          is_live = coalesce(is_live, ${event.isLive})
        where payment_id = ${paymentId}`;
      return requireOrder(await findOrder(tx, tx`o.payment_id = ${paymentId}`));
    },
    async recordPosting(tx, { paymentId }, postedCredits) {
      await tx`
        update gateway.payments_orders set posted_credits = ${postedCredits}, postings = postings + 1
        where payment_id = ${paymentId}`;
    },
  };
}

async function mergeDispute(tx: Tx, paymentId: string, { provider, fact, at }: ProviderEvent): Promise<void> {
  if (fact?.kind !== 'disputed' && fact?.kind !== 'dispute_won') return;
  const [disputedAt, wonAt] = fact.kind === 'disputed' ? [at, null] : [null, at];
  await tx`
    insert into gateway.payments_disputes as d (provider, dispute_id, payment_id, amount, disputed_at, won_at)
    values (${provider}, ${fact.disputeId}, ${paymentId}, ${fact.amount},
      ${disputedAt}::timestamptz, ${wonAt}::timestamptz)
    on conflict (provider, dispute_id) do update set
      amount = greatest(d.amount, excluded.amount),
      disputed_at = least(d.disputed_at, excluded.disputed_at),
      won_at = least(d.won_at, excluded.won_at)
    where d.payment_id = excluded.payment_id`;
}

async function findOrder(
  sql: Sql,
  condition: Fragment,
  { lock = false }: { lock?: boolean } = {},
): Promise<PaymentOrder | null> {
  const rows = await sql<OrderRow[]>`
    select ${columns(sql)} from gateway.payments_orders o where ${condition} ${lock ? sql`for update` : sql``}`;
  const [order] = await addDisputes(sql, rows);
  return order ?? null;
}

async function addDisputes(sql: Sql, rows: readonly OrderRow[]): Promise<PaymentOrder[]> {
  if (rows.length === 0) return [];
  const disputes = await sql<(Dispute & { paymentId: string })[]>`
    select payment_id as "paymentId", amount, disputed_at as "disputedAt", won_at as "wonAt"
    from gateway.payments_disputes
    where payment_id = any(${rows.map(({ paymentId }) => paymentId)}::text[])
    order by dispute_id`;
  return rows.map((row) => ({
    ...row,
    disputes: disputes.filter(({ paymentId }) => paymentId === row.paymentId),
  }));
}

/** An SQL condition for use within another query. */
type Fragment = ReturnType<Sql['unsafe']>;
type OrderRow = Omit<PaymentOrder, 'disputes'>;

function columns(sql: Sql) {
  return sql`o.payment_id as "paymentId", o.user_id as "userId", o.bureau_id as "bureauId", o.provider,
    o.currency, o.amount, o.credits, o.product, o.return_to as "returnTo",
    o.checkout_id as "checkoutId", o.checkout_url as "checkoutUrl", o.is_live as "isLive", o.reference,
    o.created_at as "createdAt", o.paid_at as "paidAt", o.expired_at as "expiredAt",
    o.failed_at as "failedAt", o.canceled_at as "canceledAt",
    o.refunded_amount as "refundedAmount", o.posted_credits as "postedCredits", o.postings`;
}

function isPending(sql: Sql) {
  return sql`paid_at is null and expired_at is null and failed_at is null and canceled_at is null`;
}

function requireOrder(order: PaymentOrder | null): PaymentOrder {
  if (!order) throw new Error('The payment order of this transaction does not exist.');
  return order;
}
