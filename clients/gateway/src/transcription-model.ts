// A transcription model of the gateway as the AI SDK's `TranscriptionModelV3`.

import type { TranscribeAudioRequest } from './generated/types.gen.ts';
import { callForSdk, type MediaRoute, readOptions } from './media-call.ts';
import { toBase64 } from './model-call.ts';
/** @ts-ignore: an optional peer; without it these types are `any`. */
import type { TranscriptionModelV3 } from '@ai-sdk/provider';

export function createTranscriptionModel(modelId: string, route: MediaRoute): TranscriptionModelV3 {
  const url = `${route.baseUrl}/v1/ai/asr`;
  return {
    specificationVersion: 'v3',
    provider: 'townhall',
    modelId,

    async doGenerate(options) {
      const { options: modelOptions, warnings } = readOptions(options);
      const { language, prompt, ...otherOptions } = modelOptions as { language?: string; prompt?: string };
      for (const name of Object.keys(otherOptions))
        warnings.push({ type: 'unsupported', feature: `providerOptions.townhall.${name}` });
      const audio = typeof options.audio === 'string' ? options.audio : toBase64(options.audio);
      const request: TranscribeAudioRequest = {
        model: modelId,
        audio,
        media_type: options.mediaType,
        ...(language === undefined ? {} : { language }),
        ...(prompt === undefined ? {} : { prompt }),
      };
      const answer = await callForSdk(
        options,
        { model: modelId, media_type: options.mediaType },
        url,
        (call) => route.transcribeAudio(request, call),
      );
      return {
        text: answer.text,
        segments: answer.segments.map(({ text, start_second, end_second }) => ({
          text,
          startSecond: start_second,
          endSecond: end_second,
        })),
        language: answer.language ?? undefined,
        durationInSeconds: answer.duration_seconds ?? undefined,
        warnings,
        response: { timestamp: new Date(), modelId },
      };
    },
  };
}
