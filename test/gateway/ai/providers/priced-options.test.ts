// Options of images and videos that could change the price of a call.
import { describe, expect, test } from 'vitest';
import type { CatalogModel } from '../../../../src/gateway/ai/catalog/catalog.ts';
import { createMediaModels } from '../../../../src/gateway/ai/providers/media-models.ts';
import type { ImageCall, VideoCall } from '../../../../src/gateway/ai/hub/media-model.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { catalogModel } from '../catalog-model.ts';

const models = createMediaModels({
  local: { images: new Map(), videos: new Map(), speech: new Map() } as never,
  providers: { access: () => ({}) as never },
  clock: systemClock,
  videoLimits: { pollMs: 1, maxBytes: 1 },
});

function checkImage(options: Record<string, unknown>, entry: Partial<CatalogModel> = {}): void {
  const model = catalogModel({ rates: { image: 40 }, ...entry });
  models.checkImage(model, { prompt: 'x', count: 1, images: [], options } as unknown as ImageCall);
}

function checkVideo(options: Record<string, unknown>, entry: Partial<CatalogModel> = {}): void {
  const model = catalogModel({ rates: { video_second: 40 }, ...entry });
  const providerEntry = { ...model.providerEntry, video_format: 'openai' as const };
  models.checkVideo({ ...model, providerEntry }, {
    prompt: 'x',
    images: [],
    options,
  } as unknown as VideoCall);
}

describe('an option that changes the price', () => {
  test.each([
    { quality: 'high' },
    { Quality: 'high' },
    { num_inference_steps: 500 },
    { input_fidelity: 'high' },
    { extra_body: { quality: 'high' } },
  ])('is refused on a model with one price: %o', (options) => {
    expect(() => checkImage(options)).toThrow(expect.objectContaining({ code: 'unpriced_member' }));
    expect(() => checkVideo(options)).toThrow(expect.objectContaining({ code: 'unpriced_member' }));
  });

  test('passes on a model without a price', () => {
    expect(() => checkImage({ quality: 'high' }, { rates: null })).not.toThrow();
  });

  test('passes only when the operator covers it', () => {
    expect(() => checkImage({ quality: 'high' }, { covered_options: ['quality'] })).not.toThrow();
    expect(() => checkImage({ hd: true }, { covered_options: ['quality'] })).toThrow('provider_options.hd');
  });

  test('passes as a resolution when the model has rates per resolution', () => {
    const rates = { video_second_720: 40, video_second_1080: 80 };
    expect(() => checkVideo({ resolution: '1080p' })).toThrow('provider_options.resolution');
    expect(() => checkVideo({ resolution: '1080p' }, { rates })).not.toThrow();
  });

  test('does not affect other options', () => {
    expect(() => checkImage({ style: 'noir', background: 'transparent' })).not.toThrow();
  });
});
