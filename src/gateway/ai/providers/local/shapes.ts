// `local/shapes`: pictures by rules and no model. Colours, numbers and names of simple things in the prompt are drawn;
// the same request gives the same picture.
import { Problem } from '../../../../kernel/problem.ts';
import type { ImageCall, ImageModel, Size } from '../../hub/media-model.ts';
import { countShapes } from './renderer/scene.ts';
import type { RenderPool } from './renderer/render-pool.ts';

const smallest = 64;
const largest = 2048;
// What a call gets that names no size: about a million pixels, as from most image models.
const usualSide = 1024;

// What one prompt may ask for. A picture within these bounds takes up to fifteen seconds of one core.
const longestPrompt = 4_000;
const mostShapes = 100;
const mostSceneryPixels = 32 * 1024 * 1024;

export function shapesModel({ renderPool }: { renderPool: RenderPool }): ImageModel {
  return {
    check(call) {
      refuseForeign(call, 'local/shapes');
      if (call.size) requireSide(call.size, { smallest, largest, id: 'local/shapes' });
      requireDrawable(call.prompt, sizeOf(call), 'local/shapes');
    },
    async generate(call, { owner, signal, reportProgress }) {
      const size = sizeOf(call);
      const made = [];
      for (let index = 0; index < call.count; index += 1) {
        const seed = `${call.seed ?? 0}\n${index}`;
        made.push(
          await renderPool.render(
            { kind: 'shapes', prompt: call.prompt, size, seed },
            { owner, signal, reportProgress: () => {} },
          ),
        );
        reportProgress((index + 1) / call.count);
      }
      return made;
    },
  };
}

function sizeOf({
  size,
  aspectRatio = { width: 1, height: 1 },
}: Pick<ImageCall, 'size' | 'aspectRatio'>): Size {
  return size ?? sizeFor(aspectRatio, usualSide, 8);
}

/** Throws a 422 for a prompt whose picture would take too long. */
export function requireDrawable(prompt: string, { width, height }: Size, id: string): void {
  if (prompt.length > longestPrompt)
    throw unsupported(`The model ${id} takes a prompt of ${longestPrompt} characters at most.`, 'prompt');
  const { shapes, scenery } = countShapes(prompt);
  if (shapes > mostShapes)
    throw unsupported(
      `The model ${id} draws ${mostShapes} things at most; the prompt asks for ${shapes}.`,
      'prompt',
    );
  const most = Math.max(Math.floor(mostSceneryPixels / (width * height)), 1);
  if (scenery > most)
    throw unsupported(
      `The model ${id} draws ${most} waves and mountains at most at ${width}x${height}; the prompt asks for ${scenery}.`,
      'prompt',
    );
}

/** Throws a 422 for what only a model that has learnt to see could use, and for members of a request that is never sent. */
export function refuseForeign({ images, options }: Pick<ImageCall, 'images' | 'options'>, id: string): void {
  if (images.length > 0) throw unsupported(`The model ${id} starts from words alone.`, 'images');
  if (Object.keys(options).length > 0)
    throw unsupported(`The model ${id} has no options of its own.`, 'provider_options');
}

/** Throws a 422 when a side is out of bounds. */
export function requireSide(
  { width, height }: Size,
  bounds: { smallest: number; largest: number; id: string },
): void {
  if ([width, height].every((side) => side >= bounds.smallest && side <= bounds.largest)) return;
  throw unsupported(
    `The model ${bounds.id} makes sizes from ${bounds.smallest}x${bounds.smallest} to ${bounds.largest}x${bounds.largest}.`,
    'size',
  );
}

/** About the area of the square with that side, in the shape of the ratio, each side a multiple of `step`. */
export function sizeFor(ratio: Size, side: number, step: number): Size {
  const width = side * Math.sqrt(ratio.width / ratio.height);
  const rounded = (length: number) => Math.min(Math.max(Math.round(length / step) * step, smallest), largest);
  return { width: rounded(width), height: rounded((width * ratio.height) / ratio.width) };
}

export function unsupported(message: string, param: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', message, { param });
}
