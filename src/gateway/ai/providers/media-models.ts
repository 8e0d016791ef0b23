// Image, video, speech and transcription models of the catalog: selects the implementation
// of an entry by the kind of its provider. text-models.ts does the same for language models.
import type { Clock } from '../../../kernel/clock.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type {
  AsyncVideoModel,
  ImageCall,
  ImageModel,
  InputFile,
  SpeechModel,
  TranscriptionModel,
  VideoCall,
  VideoModel,
} from '../hub/media-model.ts';
import { adapterOf } from './adapters.ts';
import { asyncVideoModel, type VideoLimits } from './async-video.ts';
import type { LocalMediaModels } from './local/media-models.ts';
import { openAiImageModel } from './openai/image.ts';
import { openAiSpeechModel } from './openai/speech.ts';
import { openAiTranscriptionModel } from './openai/transcription.ts';
import type { Backend } from '../upstream/backends.ts';
import type { ModelAccess } from './adapter/model-access.ts';
import type { ProviderModels } from './text-models.ts';
import { unsupportedMember } from '../hub/problems.ts';

/** The options that differ between calls of one model. */
export interface MediaCallOptions {
  /** Time left to the first byte. */
  firstMs?: number;
  /** The key and the endpoint of the call; when absent, the first usable ones. */
  backend?: Backend;
}

/** Each method throws a 422 for a model whose provider has no supported format for such calls. */
export interface MediaModels {
  image(model: CatalogModel, call?: MediaCallOptions): ImageModel;
  video(model: CatalogModel, call?: MediaCallOptions): VideoModel | AsyncVideoModel;
  /** The model of a job that is already submitted to its provider. */
  asyncVideo(model: CatalogModel, call?: MediaCallOptions): AsyncVideoModel;
  speech(model: CatalogModel, call?: MediaCallOptions): SpeechModel;
  transcription(model: CatalogModel, call?: MediaCallOptions): TranscriptionModel;
  /** Throws a 422 for a call that the model does not support. */
  checkImage(model: CatalogModel, call: ImageCall): void;
  checkVideo(model: CatalogModel, call: VideoCall): void;
}

export interface MediaModelsOptions {
  local: LocalMediaModels;
  providers: Pick<ProviderModels, 'access'>;
  clock: Pick<Clock, 'sleep'>;
  videoLimits: VideoLimits;
}

export function createMediaModels({ local, providers, clock, videoLimits }: MediaModelsOptions): MediaModels {
  const access = (model: CatalogModel, { firstMs, backend }: MediaCallOptions = {}): ModelAccess =>
    providers.access(model, { effort: undefined, firstMs, backend });

  const models: MediaModels = {
    image(model, call) {
      if (isLocal(model)) return localModel(local.images, model);
      requireOpenAiFormat(model, 'images');
      return openAiImageModel(model, access(model, call));
    },
    video: (model, call) =>
      isLocal(model) ? localModel(local.videos, model) : models.asyncVideo(model, call),
    asyncVideo(model, call) {
      const format = model.providerEntry.video_format;
      if (format === undefined) throw unsupportedKind(model, 'videos');
      return asyncVideoModel(model, format, { ...access(model, call), clock, limits: videoLimits });
    },
    speech(model, call) {
      if (isLocal(model)) return localModel(local.speech, model);
      requireOpenAiFormat(model, 'speech');
      return openAiSpeechModel(model, access(model, call));
    },
    transcription(model, call) {
      requireOpenAiFormat(model, 'transcriptions');
      return openAiTranscriptionModel(model, access(model, call), adapterOf(model).audioTokensPerSecond);
    },
    checkImage(model, call) {
      requireImageInput(model, call);
      models.image(model).check(call);
    },
    checkVideo(model, call) {
      requireImageInput(model, call);
      models.video(model).check(call);
    },
  };
  return models;
}

function isLocal(model: CatalogModel): boolean {
  return adapterOf(model).isLocal === true;
}

function localModel<T>(models: ReadonlyMap<string, T>, { upstream_model: name, id }: CatalogModel): T {
  const model = models.get(name);
  if (model !== undefined) return model;
  throw unsupportedMember('model', `The model ${id} cannot be called in this way.`);
}

function requireOpenAiFormat(model: CatalogModel, operation: string): void {
  if (adapterOf(model).hasOpenAiMedia !== true) throw unsupportedKind(model, operation);
}

function unsupportedKind({ id, providerEntry }: CatalogModel, kindName: string): Problem {
  return unsupportedMember(
    'model',
    `The model ${id} cannot be called: ${kindName} of providers of the kind ${providerEntry.kind} ` +
      'are not supported.',
  );
}

function requireImageInput(model: CatalogModel, { images }: { images: readonly InputFile[] }): void {
  const { id, inputs } = model;
  // Local models check their input themselves.
  if (isLocal(model) || images.length === 0 || inputs === undefined || inputs.includes('image')) return;
  throw unsupportedMember(
    'images',
    `The model ${id} does not accept images; its inputs are ${inputs.join(', ')}.`,
  );
}
