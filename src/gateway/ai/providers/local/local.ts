// The provider `local`: models that run in this process without a key and without a network,
// for demonstrations and tests. Their descriptions state that they are not real models.
import type { Clock } from '../../../../kernel/clock.ts';
import type { LanguageModel } from '../../hub/language-model.ts';
import type { ModelsFileEntry, ModelsFile } from '../../catalog/models-file.ts';
import { echoModel } from './echo.ts';
import { guideModel } from './guide.ts';
import { localMediaModels, localMembers, type LocalMediaModels } from './media-models.ts';

export interface LocalProviderOptions {
  clock: Pick<Clock, 'sleep'>;
  /** The folder of Markdown files that `local/guide` searches. */
  guideDirectory: string;
}

export interface LocalProvider {
  entries: ModelsFile;
  /** The models by `upstream_model`. */
  models: ReadonlyMap<string, LanguageModel>;
  media: LocalMediaModels;
}

export function localProvider({ clock, guideDirectory }: LocalProviderOptions): LocalProvider {
  const models = new Map([
    ['echo', echoModel({ clock })],
    ['guide', guideModel({ directory: guideDirectory })],
  ]);
  const media = localMediaModels();
  return {
    entries: {
      providers: [
        { id: 'local', name: 'Local', kind: 'local', usage: 'none', unpriced_members: [], formats: [] },
      ],
      models: [echo, guide, ...media.entries],
    },
    models,
    media,
  };
}

/** The provider of a gateway on which the operator has disabled the local models. */
export const noLocalModels: LocalProvider = {
  entries: { providers: [], models: [] },
  models: new Map(),
  media: { entries: [], images: new Map(), videos: new Map(), speech: new Map() },
};

const textMembers = {
  ...localMembers,
  modalities: ['text', 'stream', 'openai'],
  // 64 KiB of input at four bytes a token (formats/translation/input-checks.ts).
  context_window: 16_384,
  max_output_tokens: 8_192,
} satisfies Partial<ModelsFileEntry>;

const echo: ModelsFileEntry = {
  ...textMembers,
  id: 'local/echo',
  name: 'Echo',
  description:
    'Repeats the last user message word by word; not a language model. For testing clients: directives in ' +
    'the message make it reason, call a tool, slow down or fail.',
  upstream_model: 'echo',
  tags: ['local', 'free'],
  reasoning: {
    efforts: [
      { id: 'low', name: 'Low' },
      { id: 'high', name: 'High' },
    ],
    default_effort: 'low',
  },
};

const guide: ModelsFileEntry = {
  ...textMembers,
  id: 'local/guide',
  name: 'Guide',
  description:
    'Answers questions about this product by searching its documentation and quoting the best matches, ' +
    'with sources; not a language model.',
  upstream_model: 'guide',
  tags: ['local', 'free', 'retrieval'],
};
