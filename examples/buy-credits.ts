// The credits of a user: the balance, the usage, the payment methods, and a checkout with its
// outcome.
// Run it beside `npm start`: npx node examples/buy-credits.ts [CREDITS]
// A checkout needs a provider that is turned on, as the guide to payments says; without one only the figures
// are shown.
import { createGatewayClient, GatewayError } from '@townhall/gateway';

const baseUrl = process.env['TOWNHALL_URL'] ?? 'http://127.0.0.1:43127';
const token = process.env['TOWNHALL_TOKEN'] ?? (await logIn());
const client = createGatewayClient({ baseUrl, token });

// #region balance
const { available, held } = await client.credits.getBalance();
console.log(`Available: ${available} credits; ${held} more are set aside for calls that run.`);
// #endregion

// #region usage
const { items: models, total } = await client.usage.getUsage({ group_by: 'model' });
console.log(`Used in thirty days: ${total.credits} credits in ${total.calls} calls.`);
for (const { group, calls, credits } of models) console.log(`  ${group}: ${credits} credits, ${calls} calls`);
// #endregion

const { items: methods } = await client.payments.listMethods();
const [method] = methods;
if (method === undefined) console.log('No way to pay is turned on here.');
else await buy(method.method, Number(process.argv[2] ?? 10_000_000));

async function buy(method: 'stripe' | 'creem', credits: number): Promise<void> {
  try {
    // #region checkout
    const { payment_id, amount, currency, checkout_url } = await client.payments.createCheckout({
      method,
      credits,
    });
    console.log(`Pay ${amount} (the smallest units of ${currency}) at ${checkout_url}`);
    // #endregion
    // #region outcome
    let payment = await client.payments.getPayment({ payment_id });
    while (payment.state === 'pending') {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      payment = await client.payments.getPayment({ payment_id });
    }
    console.log(`The payment is ${payment.state}: ${payment.net_credits} credits.`);
    // #endregion
  } catch (error) {
    if (!GatewayError.isInstance(error)) throw error;
    console.error(`${error.code}: ${error.message} (request ${error.requestId})`);
    process.exitCode = 1;
  }
}

/** The local edition gives a token to every caller on the same machine. */
async function logIn(): Promise<string> {
  const guest = createGatewayClient({ baseUrl });
  const { login_id } = await guest.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
  const result = await guest.accounts.getLoginResult({ login_id });
  if (result.status !== 'done') throw new Error('The login gave no token.');
  return result.user_token;
}
