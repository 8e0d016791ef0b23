// What a person sees when a provider sends their browser back. The pages say what is so, not what was hoped: while the
// money is on its way the page asks again by itself, ever less often, and without script.
import { escapeHtml, renderHtml, type HtmlReply } from '../../kernel/http/html.ts';
import { formatAmount } from './currency.ts';
import { disputedAmount, netCredits, stateOf } from './facts.ts';
import type { PaymentOrder } from './order.ts';

type Paged<Status> = { status: Status } & HtmlReply;

interface Words {
  title: string;
  text: string;
  refreshSeconds?: number;
}

export function renderSuccess(order: PaymentOrder, now: Date): Paged<200> {
  return page(order, wordsOf(order, now));
}

/** The person went back without paying. Had they paid after all, that is what the page says. */
export function renderCancel(order: PaymentOrder, now: Date): Paged<200> {
  if (stateOf(order) !== 'pending') return renderSuccess(order, now);
  return page(order, {
    title: 'Nothing was paid',
    text: `You went back before paying ${money(order)}. Your credits are as they were.`,
  });
}

export function renderUnknown(): Paged<404> {
  return {
    status: 404,
    ...renderHtml({
      title: 'There is no such payment',
      body: '<p>This address belongs to no payment. Look at your balance where you wanted to pay.</p>',
    }),
  };
}

function wordsOf(order: PaymentOrder, now: Date): Words {
  const credits = (amount: bigint): string => `${amount.toLocaleString('en-US')} credits`;
  switch (stateOf(order)) {
    case 'pending':
      return {
        title: 'Your payment is being confirmed',
        text: `This can take a moment. Your credits are added as soon as ${money(order)} ${order.amount === 1n ? 'is' : 'are'} here; you can close this page.`,
        ...politely(now.getTime() - order.createdAt.getTime()),
      };
    case 'paid':
      return {
        title: 'Thank you',
        text: `${money(order)} were paid, and ${credits(order.credits)} were added to your balance.`,
      };
    case 'partially_refunded':
      return {
        title: 'A part was refunded',
        text: `${formatAmount(order.refundedAmount, order.currency)} of ${money(order)} went back. ${credits(netCredits(order))} of this payment remain.`,
      };
    case 'refunded':
      return {
        title: 'The payment was refunded',
        text: `${money(order)} went back, and the credits with it.`,
      };
    case 'disputed':
      return {
        title: 'The payment is disputed',
        text: `${formatAmount(disputedAmount(order), order.currency)} of ${money(order)} are called back, and the credits with it.`,
      };
    case 'expired':
      return {
        title: 'The payment has expired',
        text: `Nothing was paid. To pay ${money(order)}, begin again.`,
      };
    case 'failed':
      return { title: 'The payment failed', text: `Nothing was paid. To pay ${money(order)}, begin again.` };
    case 'canceled':
      return {
        title: 'The payment was canceled',
        text: `Nothing was paid. To pay ${money(order)}, begin again.`,
      };
  }
}

const minuteMs = 60_000;

/** Ever less often, and in the end not at all. */
function politely(ageMs: number): { refreshSeconds?: number } {
  if (ageMs < 10 * minuteMs) return { refreshSeconds: 4 };
  if (ageMs < 60 * minuteMs) return { refreshSeconds: 15 };
  return ageMs < 24 * 60 * minuteMs ? { refreshSeconds: 120 } : {};
}

function money({ amount, currency }: PaymentOrder): string {
  return formatAmount(amount, currency);
}

function page({ returnTo, paymentId }: PaymentOrder, { title, text, refreshSeconds }: Words): Paged<200> {
  const back =
    returnTo === null
      ? ''
      : `\n<p><a href="${escapeHtml(`${returnTo}#payment_id=${paymentId}`)}">Back to ${escapeHtml(new URL(returnTo).host)}</a></p>`;
  return {
    status: 200,
    ...renderHtml({
      title,
      body: `<p>${escapeHtml(text)}</p>${back}`,
      ...(refreshSeconds === undefined ? {} : { refreshSeconds }),
    }),
  };
}
