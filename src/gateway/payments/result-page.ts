// The HTML pages to which a browser returns after a payment. They show the recorded state,
// whichever of the two addresses was opened. While a payment is pending, a refresh meta element
// reloads them, so they need no script.
import { escapeHtml, renderHtml, type HtmlReply } from '../../kernel/http/pages/html.ts';
import { formatAmount } from './orders/currency.ts';
import { disputedAmount, netCredits, stateOf } from './orders/facts.ts';
import type { PaymentOrder } from './orders/order.ts';

type PageReply<Status> = { status: Status } & HtmlReply;

interface PageText {
  title: string;
  text: string;
  refreshSeconds?: number;
}

export function renderSuccess(order: PaymentOrder, now: Date): PageReply<200> {
  return renderPage(order, describePayment(order, now));
}

/**
 * The user left the checkout. If the payment completed nevertheless, the page shows the recorded
 * state.
 */
export function renderCancel(order: PaymentOrder, now: Date): PageReply<200> {
  if (stateOf(order) !== 'pending') return renderSuccess(order, now);
  return renderPage(order, {
    title: 'Nothing was paid',
    text: `You left the page before paying ${formatPrice(order)}. Your credits have not changed.`,
  });
}

export function renderUnknown(): PageReply<404> {
  return {
    status: 404,
    ...renderHtml({
      title: 'There is no such payment',
      body: '<p>This address does not belong to a payment. Check your balance in the app from which you came.</p>',
    }),
  };
}

function describePayment(order: PaymentOrder, now: Date): PageText {
  const price = formatPrice(order);
  switch (stateOf(order)) {
    case 'pending':
      return {
        title: 'Your payment is being confirmed',
        text: [
          `This can take a moment. Your credits are added as soon as your payment of ${price} arrives;`,
          'you can close this page.',
        ].join(' '),
        ...refreshInterval(now.getTime() - order.createdAt.getTime()),
      };
    case 'paid':
      return {
        title: 'Thank you',
        text: `You paid ${price}, and ${formatCredits(order.credits)} were added to your balance.`,
      };
    case 'partially_refunded':
      return {
        title: 'The payment was partly refunded',
        text: [
          `${formatAmount(order.refundedAmount, order.currency)} of ${price} was refunded.`,
          `${formatCredits(netCredits(order))} of this payment remain.`,
        ].join(' '),
      };
    case 'refunded':
      return {
        title: 'The payment was refunded',
        text: `Your payment of ${price} was refunded, and its credits were taken back.`,
      };
    case 'disputed':
      return {
        title: 'The payment is disputed',
        text: [
          `${formatAmount(disputedAmount(order), order.currency)} of ${price} is disputed,`,
          'and the credits for it were taken back.',
        ].join(' '),
      };
    case 'expired':
      return {
        title: 'The payment has expired',
        text: `Nothing was paid. To pay ${price}, start again.`,
      };
    case 'failed':
      return { title: 'The payment failed', text: `Nothing was paid. To pay ${price}, start again.` };
    case 'canceled':
      return {
        title: 'The payment was canceled',
        text: `Nothing was paid. To pay ${price}, start again.`,
      };
  }
}

const minuteMs = 60_000;

/** Every 4 s for ten minutes, then every 15 s for an hour, then every 2 minutes for a day. */
function refreshInterval(ageMs: number): { refreshSeconds?: number } {
  if (ageMs < 10 * minuteMs) return { refreshSeconds: 4 };
  if (ageMs < 60 * minuteMs) return { refreshSeconds: 15 };
  return ageMs < 24 * 60 * minuteMs ? { refreshSeconds: 120 } : {};
}

function formatCredits(credits: bigint): string {
  return `${credits.toLocaleString('en-US')} credits`;
}

function formatPrice({ amount, currency }: PaymentOrder): string {
  return formatAmount(amount, currency);
}

function renderPage(
  { returnTo, paymentId }: PaymentOrder,
  { title, text, refreshSeconds }: PageText,
): PageReply<200> {
  const backLink = returnTo === null ? '' : `\n${renderBackLink(`${returnTo}#payment_id=${paymentId}`)}`;
  return {
    status: 200,
    ...renderHtml({
      title,
      body: `<p>${escapeHtml(text)}</p>${backLink}`,
      ...(refreshSeconds === undefined ? {} : { refreshSeconds }),
    }),
  };
}

function renderBackLink(address: string): string {
  return `<p><a href="${escapeHtml(address)}">Back to ${escapeHtml(new URL(address).host)}</a></p>`;
}
