// A payment as we made it: what a person was asked to pay, for what, and where. None of it changes afterwards.
import type { PaymentFacts } from './facts.ts';

export type ProviderId = 'stripe' | 'creem';

/** What we asked a person to pay, with what is known of it since. */
export interface PaymentOrder extends PaymentFacts {
  paymentId: string;
  userId: string;
  bureauId: string;
  provider: ProviderId;
  currency: string;
  product: string | null;
  returnTo: string | null;
  checkoutId: string | null;
  checkoutUrl: string | null;
  isLive: boolean | null;
  reference: string | null;
  createdAt: Date;
  postedCredits: bigint;
  postings: number;
}

export type NewOrder = Pick<
  PaymentOrder,
  | 'paymentId'
  | 'userId'
  | 'bureauId'
  | 'provider'
  | 'currency'
  | 'amount'
  | 'credits'
  | 'product'
  | 'returnTo'
> & { ticketDigest: Buffer };

/** The page that a provider made for an order. */
export interface Checkout {
  checkoutId: string;
  checkoutUrl: string;
  isLive: boolean;
}
