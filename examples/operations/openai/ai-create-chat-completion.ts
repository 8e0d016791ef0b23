// A chat completion through the official OpenAI package.
// #region sample
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1/ai',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

const answer = await client.chat.completions.create({
  model: 'local/guide',
  messages: [{ role: 'user', content: 'How do I log in?' }],
});
console.log(answer.choices[0]?.message.content);
// #endregion
