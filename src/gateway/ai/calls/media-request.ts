// Builds the request for `callModel` that generates an image, a video or speech, or transcribes audio.
// A model of the chain without a price for the modality is skipped.
import type { ModelAttempt, ModelRequest } from './call.ts';
import type { Catalog, CatalogModel, Viewer } from '../catalog/catalog.ts';
import type { Modality } from '../catalog/models-file.ts';
import { videoResolutions, type Rates } from '../catalog/rates.ts';
import { requirePrice } from '../metering/bound.ts';

/** The rates by which calls of each modality are priced; a model needs one of them. */
export const ratesByModality = {
  image: ['image'],
  video: ['video_second', ...videoResolutions.map((lines) => `video_second_${lines}` as const)],
  tts: ['speech_character'],
  asr: ['audio_second'],
} as const satisfies Partial<Record<Modality, readonly (keyof Rates)[]>>;

export type MediaModality = keyof typeof ratesByModality;

export interface MediaRequest<T> {
  viewer: Viewer;
  modelId: string;
  modality: MediaModality;
  signal: AbortSignal;
  /** Time limit of all attempts together, until the first byte. */
  deadlineMs: number;
  /** Throws a 422 for a call that the model does not support; its fallbacks are tried next. */
  check?: (model: CatalogModel) => void;
  send: (attempt: ModelAttempt) => Promise<T>;
}

/** Throws a 404 for a model that the viewer may not use or that has another modality. */
export function mediaRequest<T>(
  catalog: Pick<Catalog, 'chain'>,
  { viewer, modelId, modality, signal, deadlineMs, check, send }: MediaRequest<T>,
): ModelRequest<T> {
  return {
    chain: catalog.chain(viewer, modelId, modality),
    signal,
    deadlineMs,
    check(model) {
      requirePrice(model, ratesByModality[modality]);
      check?.(model);
    },
    send,
  };
}
