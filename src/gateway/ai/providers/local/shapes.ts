// `local/shapes`: images drawn by rules, without a model, from the colors, numbers
// and things in the prompt. The same request gives the same image.
import type { ImageCall, ImageModel, Size } from '../../hub/media-model.ts';
import { countShapes } from './renderer/scene.ts';
import type { RenderPool } from './renderer/render-pool.ts';
import { unsupportedMember } from '../../hub/problems.ts';

const bounds = { minSide: 64, maxSide: 2048, id: 'local/shapes' };
// The default size is one megapixel, as for most image models.
const defaultSide = 1024;

// An image within these limits takes at most fifteen seconds of one core.
const maxPromptLength = 4_000;
const maxShapes = 100;
const maxSceneryPixels = 32 * 1024 * 1024;

export function shapesModel({ renderPool }: { renderPool: RenderPool }): ImageModel {
  return {
    check(call) {
      refuseUnsupportedInput(call, bounds.id);
      if (call.size) requireSide(call.size, bounds);
      requireDrawable(call.prompt, sizeOf(call), bounds.id);
    },
    async generate(call, { owner, signal, reportProgress }) {
      const size = sizeOf(call);
      const images = [];
      for (let index = 0; index < call.count; index += 1) {
        const seed = `${call.seed ?? 0}\n${index}`;
        images.push(
          await renderPool.render(
            { kind: 'shapes', prompt: call.prompt, size, seed },
            { owner, signal, reportProgress: () => {} },
          ),
        );
        reportProgress((index + 1) / call.count);
      }
      return images;
    },
  };
}

function sizeOf({
  size,
  aspectRatio = { width: 1, height: 1 },
}: Pick<ImageCall, 'size' | 'aspectRatio'>): Size {
  return size ?? sizeFor(aspectRatio, { side: defaultSide, step: 8, ...bounds });
}

/** Throws a 422 for a prompt that would take too long to draw. */
export function requireDrawable(prompt: string, { width, height }: Size, id: string): void {
  if (prompt.length > maxPromptLength)
    throw unsupportedMember(
      'prompt',
      `The model ${id} accepts a prompt of ${maxPromptLength} characters at most.`,
    );
  const { shapes, scenery } = countShapes(prompt);
  if (shapes > maxShapes)
    throw unsupportedMember(
      'prompt',
      `The model ${id} draws at most ${maxShapes} things; the prompt has ${shapes}.`,
    );
  const maxScenery = Math.max(Math.floor(maxSceneryPixels / (width * height)), 1);
  if (scenery > maxScenery)
    throw unsupportedMember(
      'prompt',
      `The model ${id} draws at most ${maxScenery} waves and mountains at ${width}x${height}; the prompt ` +
        `has ${scenery}.`,
    );
}

/** Throws a 422 for input images and provider options, which the rules do not support. */
export function refuseUnsupportedInput(
  { images, options }: Pick<ImageCall, 'images' | 'options'>,
  id: string,
): void {
  if (images.length > 0) throw unsupportedMember('images', `The model ${id} does not support input images.`);
  if (Object.keys(options).length > 0)
    throw unsupportedMember('provider_options', `The model ${id} does not support provider_options.`);
}

/** Throws a 422 for a side out of bounds. */
export function requireSide(
  { width, height }: Size,
  { minSide, maxSide, id }: { minSide: number; maxSide: number; id: string },
): void {
  if ([width, height].every((side) => side >= minSide && side <= maxSide)) return;
  throw unsupportedMember(
    'size',
    `The model ${id} supports sizes from ${minSide}x${minSide} to ${maxSide}x${maxSide}.`,
  );
}

/**
 * A size of this aspect ratio with about the area of a square of `side`; both sides are multiples of `step`.
 * For an extreme ratio the bounds take precedence.
 */
export function sizeFor(
  ratio: Size,
  { side, step, minSide, maxSide }: { side: number; step: number; minSide: number; maxSide: number },
): Size {
  const width = side * Math.sqrt(ratio.width / ratio.height);
  const round = (length: number) => Math.min(Math.max(Math.round(length / step) * step, minSide), maxSide);
  return { width: round(width), height: round((width * ratio.height) / ratio.width) };
}
