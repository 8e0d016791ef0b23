// Speech synthesis of any server with OpenAI's speech API.
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { SpeechModel } from '../../hub/media-model.ts';
import type { ModelAccess } from '../adapter/model-access.ts';
import { sendMediaRequest } from './request.ts';
import { upstreamFailed } from '../../hub/problems.ts';

export function openAiSpeechModel(model: CatalogModel, access: ModelAccess): SpeechModel {
  return {
    async generate({ text, voice = 'alloy', format = 'mp3', speed, language, instructions, signal }) {
      const members = {
        model: model.upstream_model,
        input: text,
        voice,
        response_format: format,
        speed,
        language,
        instructions,
      };
      const answer = await sendMediaRequest(access, {
        path: '/audio/speech',
        body: JSON.stringify(members),
        headers: { accept: 'audio/*' },
        signal,
      });
      if (!/^audio\/|^application\/octet-stream$/.test(answer.mediaType)) {
        answer.abort();
        throw upstreamFailed('The model provider did not answer with audio.');
      }
      return { format, content: answer.body };
    },
  };
}
