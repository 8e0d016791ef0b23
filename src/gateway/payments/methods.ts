// The payment methods that are configured now, each with its tariff.
import { Problem } from '../../kernel/problem.ts';
import type { ProviderId } from './orders/order.ts';
import type { Tariff } from './orders/price.ts';
import { readKey, type EnvReader, type PaymentProvider } from './providers/provider.ts';

/** A provider that can take payments, its tariff, and the address to which it sends browsers back. */
export interface PaymentOffer {
  provider: PaymentProvider;
  tariff: Tariff;
  baseUrl: string;
}

export interface PaymentMethods {
  env: PaymentProvider['env'];
  /** Methods that can take payments now. */
  list(): Promise<PaymentOffer[]>;
  /** Throws 404 `payment_method_not_found` while the method cannot take payments. */
  require(method: ProviderId): Promise<PaymentOffer>;
  /** Throws 404 unless the provider's keys are set: with an empty secret anyone could sign an event. */
  requireConfigured(method: ProviderId): PaymentProvider;
}

const defaultMinimumCredits = 1_000_000n;
const defaultMaximumCredits = 1_000_000_000n;

export function createPaymentMethods({
  providers,
  env,
  baseUrl,
}: {
  providers: ReadonlyMap<ProviderId, PaymentProvider>;
  env: EnvReader;
  baseUrl(): string | null;
}): PaymentMethods {
  function readCredits(key: string, fallback: bigint): bigint {
    const text = readKey(env, key) ?? '';
    return /^[1-9]\d{0,14}$/.test(text) ? BigInt(text) : fallback;
  }

  async function findOffer(provider: PaymentProvider | undefined): Promise<PaymentOffer | null> {
    const webAddress = webAddressOrNull(baseUrl());
    if (!provider?.isConfigured() || webAddress === null) return null;
    const tariff = await provider.tariff({
      minimumCredits: readCredits('PAYMENT_MINIMUM_CREDITS', defaultMinimumCredits),
      maximumCredits: readCredits('PAYMENT_MAXIMUM_CREDITS', defaultMaximumCredits),
    });
    return tariff && { provider, tariff, baseUrl: webAddress };
  }

  return {
    env: [...[...providers.values()].flatMap((provider) => provider.env), ...requirements],
    async list() {
      const offers = await Promise.all([...providers.values()].map(findOffer));
      return offers.filter((offer) => offer !== null);
    },
    async require(method) {
      const offer = await findOffer(providers.get(method));
      if (offer === null) throw methodNotFound('method');
      return offer;
    },
    requireConfigured(method) {
      const provider = providers.get(method);
      if (!provider?.isConfigured()) throw methodNotFound(null);
      return provider;
    },
  };
}

const requirements = [
  {
    key: 'CREDITS_PER_UNIT',
    description:
      'Credits for one whole unit of money, such as one dollar; one number, or usd:1000000,jpy:6500. 1000000 for dollars when absent.',
    required: false,
    secret: false,
  },
  {
    key: 'PAYMENT_MINIMUM_CREDITS',
    description: 'The smallest purchase; 1000000 when absent.',
    required: false,
    secret: false,
  },
  {
    key: 'PAYMENT_MAXIMUM_CREDITS',
    description: 'The largest purchase; 1000000000 when absent.',
    required: false,
    secret: false,
  },
] as const;

/**
 * Null unless it is an http or https address, to which the browser can return after the payment.
 */
function webAddressOrNull(text: string | null): string | null {
  return text !== null && URL.canParse(text) && /^https?:/.test(text) ? text : null;
}

function methodNotFound(param: string | null): Problem {
  return new Problem('not_found', 'payment_method_not_found', 'There is no such payment method.', {
    param,
  });
}
