// Speech of local/flite and of a provider. The tests measure the samples of the audio.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scriptedSound } from '../../../support/provider.ts';
import { refusalOf, startMedia, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
beforeAll(async () => {
  world = await startMedia();
});
afterAll(() => world?.close());

const sentence = 'Good morning, this is a test of speech.';

describe('ai.synthesizeSpeech', { timeout: 60_000 }, () => {
  it('synthesizes seconds of audio that is not silent', async () => {
    const response = await world.send('/v1/ai/tts', { model: 'local/flite', text: sentence });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('audio/wav');
    expect(response.headers.get('x-townhall-model')).toBe('local/flite');
    const sound = measureWav(Buffer.from(await response.arrayBuffer()));
    expect(sound).toMatchObject({ channels: 1, bits: 16 });
    expect(sound.seconds).toBeGreaterThan(1.5);
    expect(sound.seconds).toBeLessThan(5);
    expect(sound.loudness).toBeGreaterThan(0.02);
    // A steady tone has one loudness; speech has pauses and changes.
    expect(sound.loudnessRatio).toBeGreaterThan(3);
  });

  it('follows the speed, the text and the voice', async () => {
    const speak = async (members: object) =>
      measureWav(
        Buffer.from(
          await (
            await world.send('/v1/ai/tts', { model: 'local/flite', text: sentence, ...members })
          ).arrayBuffer(),
        ),
      );
    const [usualSpeech, fastSpeech, otherVoice, longSpeech] = [
      await speak({}),
      await speak({ speed: 2 }),
      await speak({ voice: 'kal' }),
      await speak({ text: `${sentence} ${sentence}` }),
    ];
    expect(fastSpeech.seconds).toBeLessThan(usualSpeech.seconds * 0.7);
    expect(longSpeech.seconds).toBeGreaterThan(usualSpeech.seconds * 1.6);
    expect(otherVoice.samples.equals(usualSpeech.samples)).toBe(false);
  });

  it('returns the audio of a local model as JSON on request', async () => {
    const speech = await world.user.ai.synthesizeSpeech({ model: 'local/flite', text: sentence });
    expect(speech).toMatchObject({ model: 'local/flite', media_type: 'audio/wav' });
    expect(measureWav(Buffer.from(speech.audio, 'base64')).seconds).toBeCloseTo(
      speech.duration_seconds ?? 0,
      2,
    );
  });

  it.each([
    ['no text', { model: 'local/flite' }, 400, 'text'],
    ['an invalid speed', { model: 'local/flite', text: 'x', speed: 9 }, 400, 'speed'],
    ['an unknown voice', { model: 'local/flite', text: 'x', voice: '../../etc/passwd' }, 422, 'voice'],
    ['an unsupported format', { model: 'local/flite', text: 'x', format: 'mp3' }, 422, 'format'],
    ['another language', { model: 'local/flite', text: 'x', language: 'de' }, 422, 'language'],
    ['instructions', { model: 'local/flite', text: 'x', instructions: 'whisper' }, 422, 'instructions'],
    ['characters that the model cannot pronounce', { model: 'local/flite', text: 'hello 世界' }, 422, 'text'],
    ['nothing to say', { model: 'local/flite', text: ' ... ' }, 422, 'text'],
    ['a model that cannot synthesize speech', { model: 'local/echo', text: 'x' }, 422, 'model'],
    ['an unknown model', { model: 'local/nobody', text: 'x' }, 404, 'model'],
  ])('refuses %s', async (_name, body, status, param) => {
    const response = await world.send('/v1/ai/tts', body);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { param } });
  });

  it('streams the audio of the provider unchanged', async () => {
    const response = await world.send('/v1/ai/tts', {
      model: 'acme/speaker',
      text: 'Hi',
      voice: 'nova',
      speed: 1.5,
      instructions: 'be glad',
    });
    expect(response.headers.get('content-type')).toBe('audio/mpeg');
    expect(Buffer.from(await response.arrayBuffer())).toEqual(scriptedSound);
    const call = world.provider.lastCall();
    expect(call.path).toBe('/v1/audio/speech');
    expect(JSON.parse(call.body.toString())).toEqual({
      model: 'speech',
      input: 'Hi',
      voice: 'nova',
      response_format: 'mp3',
      speed: 1.5,
      instructions: 'be glad',
    });
  });

  it('returns the audio of the provider as JSON on request', async () => {
    const document = await world.send(
      '/v1/ai/tts',
      { model: 'acme/speaker', text: 'Hi', format: 'opus' },
      { headers: { accept: 'application/json' } },
    );
    expect(await document.json()).toEqual({
      model: 'acme/speaker',
      media_type: 'audio/ogg',
      audio: scriptedSound.toString('base64'),
      duration_seconds: null,
    });
  });

  it.each([
    ['an error', 'acme/broken'],
    ['an answer without sound', 'acme/listener'],
  ])('is 502 for %s of the provider', async (_name, model) => {
    const response = await world.send('/v1/ai/tts', { model, text: 'Hi' });
    expect(await refusalOf(response)).toMatchObject([502, { code: 'upstream_failed' }]);
  });

  it('aborts the provider call when the client disconnects', async () => {
    world.provider.reset();
    const clientAbort = new AbortController();
    const call = fetch(`${world.url}/v1/ai/tts`, {
      method: 'POST',
      signal: clientAbort.signal,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${world.userToken}` },
      body: JSON.stringify({ model: 'acme/silent', text: 'Hi' }),
    });
    await world.provider.until((calls) => calls.length === 1);
    clientAbort.abort();
    await expect(call).rejects.toMatchObject({ name: 'AbortError' });
    await world.provider.until(([providerCall]) => providerCall?.abortedAt !== undefined);
  });
});

/** Measures a WAV file; the ratio is of its loudest tenth of a second to its quietest. */
function measureWav(file: Buffer) {
  expect([file.toString('latin1', 0, 4), file.toString('latin1', 8, 16)]).toEqual(['RIFF', 'WAVEfmt ']);
  const [channels, rate, bits] = [file.readUInt16LE(22), file.readUInt32LE(24), file.readUInt16LE(34)];
  const start = file.indexOf('data') + 8;
  const samples = file.subarray(start, start + file.readUInt32LE(start - 4));
  const loudness = (startByte: number, endByte: number) => {
    let sum = 0;
    for (let offset = startByte; offset + 2 <= endByte; offset += 2)
      sum += (samples.readInt16LE(offset) / 32_768) ** 2;
    return Math.sqrt(sum / ((endByte - startByte) / 2));
  };
  const windowBytes = Math.floor(rate / 10) * 2;
  const windows = Array.from({ length: Math.floor(samples.length / windowBytes) }, (_, index) =>
    loudness(index * windowBytes, (index + 1) * windowBytes),
  );
  return {
    channels,
    bits,
    samples,
    seconds: samples.length / (rate * channels * (bits / 8)),
    loudness: loudness(0, samples.length),
    loudnessRatio: Math.max(...windows) / Math.max(Math.min(...windows), 1e-4),
  };
}
