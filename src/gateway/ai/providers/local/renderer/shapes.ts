// The image of `local/shapes`: the scene of the prompt. A label in the image and texts in the file say that
// it was drawn by rules.
import { paintLine, lineWidth } from './bitmap-font.ts';
import type { MediaFile } from '../../../hub/media-model.ts';
import { encodePng } from './png.ts';
import { paintScene } from './scene.ts';
import type { RenderTask } from './render-pool.ts';

const label = 'LOCAL/SHAPES';
// In a smaller image the label would cover the scene.
const minLabelledSide = 160;

export function renderShapes({ prompt, size, seed }: Extract<RenderTask, { kind: 'shapes' }>): MediaFile {
  const canvas = paintScene(prompt, size, seed);
  const scale = Math.max(Math.round(Math.min(size.width, size.height) / 512), 1);
  if (Math.min(size.width, size.height) >= minLabelledSide) {
    const margin = 6 * scale;
    const position = {
      x: size.width - lineWidth(label) * scale - margin,
      y: size.height - 7 * scale - margin,
      scale,
    };
    paintLine(canvas, label, {
      ...position,
      x: position.x + scale,
      y: position.y + scale,
      color: [0, 0, 0],
      opacity: 0.35,
    });
    paintLine(canvas, label, { ...position, color: [255, 255, 255], opacity: 0.8 });
  }
  const content = encodePng(canvas, {
    Software: 'Townhall local/shapes',
    Description: prompt,
    Comment: 'Drawn by rules from the words of the description. No image model was used.',
  });
  return { content, mediaType: 'image/png', ...size, durationSeconds: null };
}
