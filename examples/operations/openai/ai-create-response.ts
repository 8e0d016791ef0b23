// A response through the official OpenAI package.
// #region sample
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1/ai',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

const answer = await client.responses.create({ model: 'openai/gpt-5.1', input: 'Good morning' });
console.log(answer.output_text);
// #endregion
