// Payments and payment methods in the contract's shape.
import type { Payment, PaymentMethod } from '../../contract/gateway/types.gen.ts';
import { disputedAmount, disputeTimes, netCredits, stateOf } from './orders/facts.ts';
import type { PaymentOrder } from './orders/order.ts';
import type { Tariff } from './orders/price.ts';
import type { PaymentProvider } from './providers/provider.ts';

export function serializeMethod(
  { id, label }: Pick<PaymentProvider, 'id' | 'label'>,
  tariff: Tariff,
): PaymentMethod {
  return {
    method: id,
    label,
    currency: tariff.currency,
    credits_per_unit: Number(tariff.creditsPerUnit),
    minimum_amount: Number(tariff.minimum),
    maximum_amount: Number(tariff.maximum),
    amount_step: Number(tariff.step),
  };
}

export function serializePayment(order: PaymentOrder): Payment {
  const { disputedAt, wonAt } = disputeTimes(order);
  const state = stateOf(order);
  return {
    payment_id: order.paymentId,
    user_id: order.userId,
    bureau_id: order.bureauId,
    method: order.provider,
    state,
    amount: Number(order.amount),
    currency: order.currency,
    credits: Number(order.credits),
    net_credits: Number(netCredits(order)),
    refunded_amount: Number(order.refundedAmount),
    disputed_amount: Number(disputedAmount(order)),
    checkout_url: state === 'pending' ? order.checkoutUrl : null,
    created_at: order.createdAt.toISOString(),
    paid_at: serializeTime(order.paidAt),
    expired_at: serializeTime(order.expiredAt),
    disputed_at: serializeTime(disputedAt),
    dispute_won_at: serializeTime(wonAt),
  };
}

function serializeTime(time: Date | null): string | null {
  return time?.toISOString() ?? null;
}
