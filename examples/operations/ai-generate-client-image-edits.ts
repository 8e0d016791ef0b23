// A picture through the official OpenAI package.
// #region sample
import OpenAI, { toFile } from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

const picture = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const answer = await client.images.edit({
  model: 'acme/painter',
  prompt: 'The same in green',
  image: await toFile(picture, 'boat.png', { type: 'image/png' }),
});
console.log(answer.data?.[0]?.url);
// #endregion
