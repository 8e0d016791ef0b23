// A speech model of the gateway as the AI SDK's `SpeechModelV3`.

import type { SynthesizeSpeechRequest } from './generated/types.gen.ts';
import { callForSdk, type MediaRoute, readOptions } from './media-call.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { SpeechModelV3 } from '@ai-sdk/provider';

export function createSpeechModel(modelId: string, route: MediaRoute): SpeechModelV3 {
  const url = `${route.baseUrl}/v1/ai/tts`;
  return {
    specificationVersion: 'v3',
    provider: 'townhall',
    modelId,

    async doGenerate(options) {
      const { text, voice, outputFormat, instructions, speed, language } = options;
      const { options: modelOptions, warnings } = readOptions(options);
      for (const name of Object.keys(modelOptions))
        warnings.push({ type: 'unsupported', feature: `providerOptions.townhall.${name}` });
      // The gateway refuses unknown formats; the client sends the format unchecked.
      const request = {
        model: modelId,
        text,
        voice,
        format: outputFormat as SynthesizeSpeechRequest['format'],
        instructions,
        speed,
        language,
      };
      const speech = await callForSdk(options, request, url, (call) => route.synthesizeSpeech(request, call));
      return {
        audio: speech.audio,
        warnings,
        request: { body: request },
        response: { timestamp: new Date(), modelId: speech.model },
      };
    },
  };
}
