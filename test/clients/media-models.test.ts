// The client's image, speech and transcription models under both versions of the AI SDK, against a
// real gateway.

import {
  experimental_generateSpeech as generateSpeech6,
  experimental_transcribe as transcribe6,
  generateImage as generateImage6,
} from 'ai6';
import * as ai7 from 'ai';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGatewayClient, type GatewayClient, GatewayError } from '../../clients/gateway/src/index.ts';
import { type GatewayWorld, startGateway } from '../support/gateway.ts';
import { type ScriptedProvider, startProvider } from '../support/provider.ts';

let world: GatewayWorld;
let provider: ScriptedProvider;
let client: GatewayClient;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-media-models-'));
  provider = await startProvider();
  const modelsFile = join(folder, 'models.json');
  await writeFile(
    modelsFile,
    provider.modelsFile(
      { painter: 'images', slow: 'images-slow', refusing: 'status?code=400&message=no', whisper: 'whisper' },
      { model: { modalities: ['image', 'asr'] } },
    ),
  );
  world = await startGateway({
    env: {
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'key',
      STORAGE_PATH: join(folder, 'storage'),
      TIMEOUT_DRAIN_MS: '1000',
    },
  });
  client = createGatewayClient({ baseUrl: world.url, token: world.userToken });
}, 240_000);
afterAll(async () => {
  await world?.close();
  await provider?.close();
  await rm(folder, { recursive: true, force: true });
});

const sdks = [
  { name: 'ai 6', generateImage: generateImage6, generateSpeech: generateSpeech6, transcribe: transcribe6 },
  {
    name: 'ai 7',
    generateImage: ai7.generateImage,
    generateSpeech: ai7.generateSpeech,
    transcribe: ai7.transcribe,
  },
] as unknown as {
  name: string;
  generateImage: typeof ai7.generateImage;
  generateSpeech: typeof ai7.generateSpeech;
  transcribe: typeof ai7.transcribe;
}[];

describe.each(sdks)('under $name', { timeout: 240_000 }, ({ generateImage, generateSpeech, transcribe }) => {
  test('generateImage returns the pictures of a job', async () => {
    const { images, warnings } = await generateImage({
      model: client.imageModel('local/shapes'),
      prompt: 'two green squares',
      n: 2,
      size: '96x64',
      seed: 3,
    });
    expect(warnings).toEqual([]);
    expect(images.map(({ mediaType }) => mediaType)).toEqual(['image/png', 'image/png']);
    // The P of the PNG signature, and the last bytes of the width and the height.
    for (const { uint8Array } of images)
      expect([uint8Array[1], uint8Array[19], uint8Array[23]]).toEqual([0x50, 96, 64]);
  });

  test('generateSpeech returns audio that transcribe reads', async () => {
    const { audio } = await generateSpeech({
      model: client.speechModel('local/flite'),
      text: 'Good morning.',
      voice: 'kal',
      outputFormat: 'wav',
    });
    expect(Buffer.from(audio.uint8Array).toString('latin1', 0, 4)).toBe('RIFF');
    const transcript = await transcribe({
      model: client.transcriptionModel('acme/whisper'),
      audio: audio.uint8Array,
    });
    // The transcription that the scripted provider answers with, whatever the audio.
    expect(transcript).toMatchObject({
      text: 'Good morning.',
      language: 'en',
      durationInSeconds: 1.5,
      segments: [{ text: 'Good morning.', startSecond: 0, endSecond: 1.25 }],
    });
  });

  test('throws the refusal of an image or of speech', async () => {
    const error: unknown = await generateImage({
      model: client.imageModel('local/shapes'),
      prompt: 'x',
      size: '9999x9999',
    }).catch((cause: unknown) => cause);
    expect(GatewayError.isInstance(error) && error.status).toBe(422);
    await expect(
      generateSpeech({ model: client.speechModel('local/flite'), text: 'x', outputFormat: 'mp3' }),
    ).rejects.toMatchObject({ status: 422 });
  });

  test('throws the failure of a job without a second job', async () => {
    provider.reset();
    const error: unknown = await generateImage({
      model: client.imageModel('acme/refusing'),
      prompt: 'x',
    }).catch((cause: unknown) => cause);
    expect(GatewayError.isInstance(error) && error.message).toBe('no');
    expect(provider.calls).toHaveLength(1);
  });

  test('cancels the job when the caller aborts', async () => {
    provider.reset();
    const giveUp = new AbortController();
    const generation = generateImage({
      model: client.imageModel('acme/slow'),
      prompt: 'x',
      abortSignal: giveUp.signal,
    }).catch((error: unknown) => error);
    await provider.until((calls) => calls.length === 1, 30_000);
    giveUp.abort();
    expect(await generation).toMatchObject({ name: 'AbortError' });
    await provider.until(([call]) => call?.abortedAt !== undefined, 15_000);
  });
});

test('a media model warns of options for other providers', async () => {
  const { warnings } = await ai7.generateImage({
    model: client.imageModel('local/shapes'),
    prompt: 'x',
    size: '64x64',
    providerOptions: { openai: { quality: 'high' } },
  });
  expect(warnings).toMatchObject([{ type: 'unsupported', feature: 'providerOptions.openai' }]);
});
