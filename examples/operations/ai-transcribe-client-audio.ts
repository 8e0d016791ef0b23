// A recording through the official OpenAI package.
// #region sample
import OpenAI, { toFile } from 'openai';

const client = new OpenAI({
  baseURL: 'http://127.0.0.1:43127/v1',
  apiKey: process.env['TOWNHALL_TOKEN'],
});

const sound = Buffer.from('UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA=', 'base64');
const answer = await client.audio.transcriptions.create({
  model: 'acme/listener',
  file: await toFile(sound, 'speech.wav', { type: 'audio/wav' }),
});
console.log(answer.text);
// #endregion
