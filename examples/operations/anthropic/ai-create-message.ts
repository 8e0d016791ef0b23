// A message through the official Anthropic package.
// #region sample
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({
  baseURL: 'http://127.0.0.1:43127/v1/ai',
  apiKey: null,
  authToken: process.env['TOWNHALL_TOKEN'],
});

const answer = await client.messages.create({
  model: 'anthropic/claude-haiku-4-5',
  max_tokens: 256,
  messages: [{ role: 'user', content: 'Good morning' }],
});
console.log(answer.content);
// #endregion
