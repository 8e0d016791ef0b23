// Embeddings through the official OpenAI package.
// #region sample
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1/ai',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

const answer = await client.embeddings.create({ model: 'acme/vectors', input: 'Good morning' });
console.log(answer.data[0]?.embedding.length);
// #endregion
