// The AI SDK against the gateway, both ways: with the model object of our client, which carries tools, files
// and reasoning, and with the SDK's own provider for servers that speak the chat-completions format.
// Run it beside `npm start`: npm ci --prefix examples && npx node examples/ai-sdk.ts
import { readFile } from 'node:fs/promises';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createGatewayClient } from '@townhall/gateway';
import { generateText, streamText } from 'ai';

const baseUrl = process.env['TOWNHALL_URL'] ?? 'http://127.0.0.1:43127';
const token = process.env['TOWNHALL_TOKEN'] ?? (await readFile('data/local.token', 'utf8')).trim();

const client = createGatewayClient({ baseUrl, token });
const { text, usage } = await generateText({
  model: client.model('local/guide'),
  prompt: 'How do I log in?',
});
console.log(`client.model: ${text} (${usage.totalTokens} tokens)`);

process.stdout.write('client.model, streamed: ');
const { textStream } = streamText({
  model: client.model('local/guide'),
  prompt: 'How do I stream an answer?',
});
for await (const delta of textStream) process.stdout.write(delta);
console.log();

const compatibleProvider = createOpenAICompatible({
  name: 'townhall',
  baseURL: `${baseUrl}/v1/ai`,
  apiKey: token,
});
const secondAnswer = await generateText({
  model: compatibleProvider('local/guide'),
  prompt: 'How do I add a model provider?',
});
console.log(`openai-compatible: ${secondAnswer.text}`);
