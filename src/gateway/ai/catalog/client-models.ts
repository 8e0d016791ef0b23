// The catalog in the formats of OpenAI's and Anthropic's model lists. Anthropic's list has pages.
import type {
  MessagesModel,
  MessagesModelList,
  ModelEntry,
  ModelType,
} from '../../../contract/gateway/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Modality, ModelsFileEntry } from './models-file.ts';

export interface ModelsPage {
  limit?: number | undefined;
  after_id?: string | undefined;
  before_id?: string | undefined;
}

// The default of Anthropic's API.
const defaultLimit = 20;

const typeOfModality: Readonly<Record<Modality, ModelType>> = {
  text: 'chat',
  stream: 'chat',
  openai: 'chat',
  embedding: 'embedding',
  moderation: 'moderation',
  image: 'image',
  video: 'video',
  tts: 'speech',
  asr: 'transcription',
};

/** Models with several modalities count as chat models if chat is one of them. */
export function modelType({ modalities }: Pick<ModelsFileEntry, 'modalities'>): ModelType {
  const types = modalities.map((modality) => typeOfModality[modality]);
  return types.find((type) => type === 'chat') ?? types[0] ?? 'other';
}

export function toModelEntry(model: ModelsFileEntry): ModelEntry {
  const { id, created, provider, context_window, max_output_tokens } = model;
  return {
    id,
    object: 'model',
    created,
    owned_by: provider,
    type: modelType(model),
    context_window,
    max_output_tokens,
  };
}

export function toMessagesModel(model: ModelsFileEntry): MessagesModel {
  return {
    id: model.id,
    type: 'model',
    display_name: model.name,
    created_at: new Date(model.created * 1000).toISOString(),
    max_input_tokens: model.context_window,
    max_tokens: model.max_output_tokens,
  };
}

/** A page of the models for chat. Throws a 400 for an unknown model in `after_id` or `before_id`. */
export function toMessagesModelList(models: readonly ModelsFileEntry[], page: ModelsPage): MessagesModelList {
  const { limit = defaultLimit, after_id: afterId, before_id: beforeId } = page;
  const chatModels = models.filter((model) => modelType(model) === 'chat');
  const start = afterId === undefined ? 0 : indexOf(chatModels, 'after_id', afterId) + 1;
  const end = beforeId === undefined ? chatModels.length : indexOf(chatModels, 'before_id', beforeId);
  const range = chatModels.slice(start, end);
  // A page with `before_id` contains the models right before that model.
  const isBackwards = beforeId !== undefined && afterId === undefined;
  const data = (isBackwards ? range.slice(-limit) : range.slice(0, limit)).map(toMessagesModel);
  return {
    data,
    has_more: range.length > data.length,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  };
}

function indexOf(models: readonly ModelsFileEntry[], param: string, modelId: string): number {
  const index = models.findIndex(({ id }) => id === modelId);
  if (index >= 0) return index;
  const message = `"${param}": "${modelId}" is not in this list; use first_id or last_id of another page.`;
  throw new Problem('bad_request', 'invalid_request', message, { param });
}
