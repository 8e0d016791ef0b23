// The payment order: the amount, the credits and the payment method of one checkout. It is fixed
// before the checkout is created.
import type { PaymentFacts } from './facts.ts';

export type ProviderId = 'stripe' | 'creem';

/** A payment order with the facts recorded since. */
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
> & {
  /** The SHA-256 digest of the token in the addresses of the result pages. */
  resultTokenDigest: Buffer;
};

/** The page on which the user pays. */
export interface Checkout {
  checkoutId: string;
  checkoutUrl: string;
  isLive: boolean;
}
