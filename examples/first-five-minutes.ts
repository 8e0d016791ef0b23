// The first five minutes with the client: log in, list the models, request a whole answer and a
// streamed one.
// Run it beside `npm start`: npx node examples/first-five-minutes.ts
// #region client
import { createGatewayClient, GatewayError } from '@townhall/gateway';

const baseUrl = process.env['TOWNHALL_URL'] ?? 'http://127.0.0.1:43127';
const client = createGatewayClient({ baseUrl, token: process.env['TOWNHALL_TOKEN'] ?? logIn });
// #endregion

let login: Promise<string> | undefined;

/**
 * The local edition gives a token to every caller on the same machine; the client keeps it for
 * later calls.
 */
function logIn(): Promise<string> {
  login ??= (async () => {
    const { login_id } = await client.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
    const result = await client.accounts.getLoginResult({ login_id });
    if (result.status !== 'done') throw new Error('The login gave no token.');
    console.log(`Logged in: ${result.user_token.slice(0, 10)}…`);
    return result.user_token;
  })();
  return login;
}

// #region models
const { items } = await client.ai.listModels();
console.log(`Models: ${items.map(({ id }) => id).join(', ')}`);
// #endregion

// #region text
const answer = await client.ai.generateText({
  model: 'local/guide',
  prompt: 'How do I add a model provider?',
});
for (const part of answer.parts) if (part.type === 'text') console.log(`Whole: ${part.text}`);
// #endregion

process.stdout.write('Streamed: ');
// #region stream
const prompt = [
  { role: 'user' as const, content: [{ type: 'text' as const, text: 'How do I stream an answer?' }] },
];
for await (const part of client.ai.streamText({ model: 'local/guide', prompt })) {
  if (part.type === 'text-delta') process.stdout.write(part.delta);
}
// #endregion
console.log();

// #region refused
try {
  await client.ai.getModel({ model_id: 'acme/unknown' });
} catch (error) {
  if (GatewayError.isInstance(error))
    console.log(`Refused: ${error.status} ${error.code}, request ${error.requestId}`);
}
// #endregion
