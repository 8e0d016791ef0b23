// A gateway with doubles of both payment providers, and the common steps of payment tests.
import { vi } from 'vitest';
import { startGateway, type GatewayWorld, type GatewayWorldOptions } from '../../support/gateway.ts';
import { startCreem, type CreemDouble, type CreemEvent } from '../../support/creem.ts';
import { startStripe, type StripeDouble, type StripeEvent } from '../../support/stripe.ts';
import type { DatabasePlace } from '../../support/databases.ts';

export interface Answer {
  status: number;
  outcome: string | undefined;
  code: string | undefined;
}

export interface PaymentsWorld extends GatewayWorld {
  stripe: StripeDouble;
  creem: CreemDouble;
  /** Signs an event and posts it to the webhook, as the provider does. */
  deliver(provider: 'stripe' | 'creem', event: StripeEvent | CreemEvent, baseUrl?: string): Promise<Answer>;
  post(
    provider: 'stripe' | 'creem',
    body: string | Uint8Array,
    headers: Record<string, string | string[]>,
    baseUrl?: string,
  ): Promise<Answer>;
  /** Creates a user without credits in the Bureau `local`. */
  newUser(): Promise<{ userId: string; client: GatewayWorld['user']; token: string }>;
  /** The posted credits and the debt. */
  balance(userId: string): Promise<{ posted: bigint; owed: bigint }>;
  /** Spends credits as a call does. */
  spend(userId: string, credits: bigint): Promise<void>;
  /** The number of times that a payment was posted to the ledger. */
  postings(userId: string): Promise<number>;
  /** The sum of all ledger entries, which has to be 0. */
  ledgerSum(): Promise<bigint>;
  /** The events that the gateway set aside for an operator. */
  quarantined(): Promise<{ event: string; reason: string }[]>;
  /** Polls the providers for pending payments; returns the number of changed ones. */
  poll(): Promise<number>;
}

export interface PaymentsWorldOptions extends GatewayWorldOptions {
  /** Doubles shared with another gateway. */
  beside?: { stripe: StripeDouble; creem: CreemDouble };
  place?: DatabasePlace;
  /**
   * Result pages use the gateway's own address, so that a browser can open them; embedded engine
   * only.
   */
  usesGatewayAddress?: boolean;
}

export const cityBaseUrl = 'https://city.example.test/base/';

export async function startPayments(options: PaymentsWorldOptions = {}): Promise<PaymentsWorld> {
  const stripe = options.beside?.stripe ?? (await startStripe());
  const creem = options.beside?.creem ?? (await startCreem());
  const env = {
    ...stripe.env,
    ...creem.env,
    ...(options.usesGatewayAddress ? {} : { TOWNHALL_CITY_BASE_URL: cityBaseUrl }),
    CREDITS_PER_UNIT: '1000000',
    STARTING_CREDITS: '0',
    ...options.env,
  };
  const world = await startGateway({ withAdmin: true, ...options, env });
  const { sql } = world;
  // On the embedded engine, the first poll is ten minutes after the start.
  if (world.database.engine === 'postgres') await stopPolling(sql);

  const post: PaymentsWorld['post'] = (provider, body, headers, baseUrl = world.url) =>
    postWebhook(`${baseUrl}/v1/payments/webhook/${provider}`, body, headers);

  return Object.assign(Object.create(null) as object, describeWorld(world), {
    stripe,
    creem,
    post,
    deliver(provider: 'stripe' | 'creem', event: StripeEvent | CreemEvent, baseUrl?: string) {
      const { body, signature } =
        provider === 'stripe' ? stripe.sign(event as StripeEvent) : creem.sign(event as CreemEvent);
      return post(provider, body, { [`${provider}-signature`]: signature }, baseUrl);
    },
    async newUser() {
      const token = await world.admin.accounts.issueToken({
        bureau_id: 'local',
        external_id: `person-${crypto.randomUUID()}`,
      });
      return { userId: token.user_id, client: world.as(token.user_token), token: token.user_token };
    },
    ...ledgerOf(sql),
    poll: () => world.gateway.pollPayments(),
    async close() {
      await world.close();
      if (!options.beside) await Promise.all([stripe.close(), creem.close()]);
    },
  }) as PaymentsWorld;
}

/** Reads and changes credits and payments directly in the tables. */
function ledgerOf(
  sql: GatewayWorld['sql'],
): Pick<PaymentsWorld, 'balance' | 'spend' | 'postings' | 'ledgerSum' | 'quarantined'> {
  return {
    async balance(userId: string) {
      const [row] = await sql<{ posted: bigint; owed: bigint }[]>`
        select posted, owed from gateway.credits_accounts where account_id = ${userId}`;
      return row ?? { posted: 0n, owed: 0n };
    },
    async spend(userId: string, credits: bigint) {
      await sql`
        select gateway.credits_take_back(
          ${userId}, 'deduct', ${crypto.randomUUID()}, ${credits}, 'a call', false)`;
    },
    async postings(userId: string) {
      const rows = await sql`
        select 1 from gateway.credits_txs
        where account_id = ${userId} and kind in ('payment', 'refund', 'dispute')`;
      return rows.length;
    },
    async ledgerSum() {
      const [row] = await sql<{ sum: string | null }[]>`
        select sum(amount)::text as sum from gateway.credits_entries`;
      return BigInt(row?.sum ?? '0');
    },
    async quarantined() {
      const rows = await sql<{ diff: { event_id: string; reason: string } }[]>`
        select diff from gateway.audit_entries where action = 'payments.quarantined' order by entry_id`;
      return rows.map(({ diff }) => ({ event: diff.event_id, reason: diff.reason }));
    },
  };
}

async function postWebhook(
  url: string,
  body: string | Uint8Array,
  headers: Record<string, string | string[]>,
): Promise<Answer> {
  const requestHeaders = new Headers({ 'content-type': 'application/json' });
  for (const [name, values] of Object.entries(headers))
    for (const value of [values].flat()) requestHeaders.append(name, value);
  const answer = await fetch(url, { method: 'POST', headers: requestHeaders, body: Buffer.from(body) });
  const answerBody = (await answer.json()) as { outcome?: string; error?: { code: string } };
  return {
    status: answer.status,
    outcome: answerBody.outcome,
    code: answerBody.error?.code,
  };
}

/** The last segment of a payment page's address, which is the id of the provider's session. */
export function pageIdOf({ checkout_url: url }: { checkout_url: string | null }): string {
  if (url === null) throw new Error('This payment has no page.');
  return url.split('/').at(-1) ?? '';
}

/** Removes the schedule by which the gateway polls the providers, so that only tests poll them. */
async function stopPolling(sql: GatewayWorld['sql']): Promise<void> {
  // The queue writes the schedule at the end of its start, in the background, so wait for it.
  // `expect.poll` works only within tests, and worlds are created before them.
  await vi.waitFor(
    async () => {
      const removedSchedule =
        await sql`delete from pgboss.schedule where name = 'payments-look' returning name`;
      if (removedSchedule.length === 0) throw new Error('The schedule of the polls was not written.');
    },
    { interval: 20, timeout: 30_000 },
  );
}

/** The world's own members, including accessors. */
function describeWorld(world: GatewayWorld): object {
  return { ...world, admin: world.admin, adminToken: world.adminToken };
}
