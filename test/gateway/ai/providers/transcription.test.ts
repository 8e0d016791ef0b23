// The forms in which servers report the duration of a transcription, by which it is charged.
import { describe, expect, test } from 'vitest';
import type { ModelAccess } from '../../../../src/gateway/ai/providers/adapter/model-access.ts';
import { openAiTranscriptionModel } from '../../../../src/gateway/ai/providers/openai/transcription.ts';
import { catalogModel } from '../catalog-model.ts';

const audioTokensPerSecond = 10;

/** The duration that is read from an answer with these members. */
async function readDuration(members: object): Promise<number | null> {
  async function* body(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(JSON.stringify({ text: 'Good morning.', ...members }));
  }
  const send = async () => ({ mediaType: 'application/json', body: body(), abort: () => {} });
  const access = { upstream: { send }, baseUrl: 'https://provider.example/v1' } as unknown as ModelAccess;
  const { durationSeconds } = await openAiTranscriptionModel(
    catalogModel(),
    access,
    audioTokensPerSecond,
  ).generate({
    audio: { content: new Uint8Array(1), mediaType: 'audio/wav' },
    fileName: 'audio.wav',
    language: undefined,
    prompt: undefined,
    signal: new AbortController().signal,
  });
  return durationSeconds;
}

describe('the duration of a transcription', () => {
  test.each<[string, object, number | null]>([
    ['a number', { duration: 1.5 }, 1.5],
    ['a string', { duration: '1.5' }, 1.5],
    ['seconds in the usage', { usage: { type: 'duration', seconds: 2 } }, 2],
    ['the seconds of Mistral', { usage: { prompt_audio_seconds: 3 } }, 3],
    ['audio tokens in the usage', { usage: { input_token_details: { audio_tokens: 40 } } }, 4],
    ['a zero', { duration: 0 }, 0],
  ])('is read from %s', async (_form, members, seconds) => {
    expect(await readDuration(members)).toBe(seconds);
  });

  test.each<[string, object]>([
    ['no duration', {}],
    ['an empty string', { duration: '' }],
    ['a negative number', { duration: -1 }],
    ['words', { duration: 'unknown' }],
  ])('is unknown for %s', async (_form, members) => {
    expect(await readDuration(members)).toBeNull();
  });
});
