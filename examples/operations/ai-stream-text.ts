// The stream of a model, printed as it comes.
// #region sample
import { createGatewayClient } from '@townhall/gateway';

const client = createGatewayClient({
  baseUrl: 'http://127.0.0.1:43127',
  token: process.env['TOWNHALL_TOKEN'],
});

for await (const part of client.ai.streamText({
  model: 'local/echo',
  prompt: [{ role: 'user', content: [{ type: 'text', text: 'Good morning' }] }],
})) {
  if (part.type === 'text-delta') process.stdout.write(part.delta);
}
// #endregion
