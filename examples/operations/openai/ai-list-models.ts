// The models through the official OpenAI package.
// #region sample
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1/ai',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

for await (const model of client.models.list()) console.log(model.id);
// #endregion
