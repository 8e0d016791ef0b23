// The official OpenAI package, unchanged, against the gateway.
// Run it beside `npm start`: npm ci --prefix examples && npx node examples/openai-client.ts
import { readFile } from 'node:fs/promises';
import OpenAI from 'openai';

const baseUrl = process.env['TOWNHALL_URL'] ?? 'http://127.0.0.1:43127';
const token = process.env['TOWNHALL_TOKEN'] ?? (await readFile('data/local.token', 'utf8')).trim();
const openai = new OpenAI({ baseURL: `${baseUrl}/v1/ai`, apiKey: token });

const models = await openai.models.list();
console.log(`Models: ${models.data.map(({ id }) => id).join(', ')}`);

const completion = await openai.chat.completions.create({
  model: 'local/guide',
  messages: [{ role: 'user', content: 'How do I log in?' }],
});
console.log(`Whole: ${completion.choices[0]?.message.content}`);

process.stdout.write('Streamed: ');
const stream = await openai.chat.completions.create({
  model: 'local/guide',
  stream: true,
  messages: [{ role: 'user', content: 'How do I add a model provider?' }],
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
console.log();
