// `local/storyboard`: videos of drawn scenes, one for each sentence of the prompt,
// by rules and without a model.
import type { Size, VideoCall, VideoModel } from '../../hub/media-model.ts';
import type { RenderPool } from './renderer/render-pool.ts';
import { refuseUnsupportedInput, requireDrawable, requireSide, sizeFor } from './shapes.ts';
import { unsupportedMember } from '../../hub/problems.ts';

const bounds = { minSide: 64, maxSide: 1280, id: 'local/storyboard' };
const defaults = { width: 640, height: 360, durationSeconds: 4, framesPerSecond: 12 };
const maxSeconds = 20;
const maxFramesPerSecond = 30;
// The pixels of all frames: about 20 seconds of 640x360 at 30 frames a second, or 6 seconds of 1280x720 at
// 24. A megapixel takes 100 ms to draw and encode.
const maxPixels = 150_000_000;

export function storyboardModel({ renderPool }: { renderPool: RenderPool }): VideoModel {
  return {
    check(call) {
      refuseUnsupportedInput(call, bounds.id);
      if (call.size) {
        requireSide(call.size, bounds);
        if (call.size.width % 2 !== 0 || call.size.height % 2 !== 0)
          throw unsupportedMember('size', `The model ${bounds.id} needs an even width and height.`);
      }
      if ((call.durationSeconds ?? 0) > maxSeconds)
        throw unsupportedMember(
          'duration_seconds',
          `The model ${bounds.id} generates ${maxSeconds} seconds at most.`,
        );
      if ((call.framesPerSecond ?? 0) > maxFramesPerSecond)
        throw unsupportedMember(
          'fps',
          `The model ${bounds.id} generates ${maxFramesPerSecond} frames a second at most.`,
        );
      requirePixels(call);
      requireDrawable(call.prompt, sizeOf(call), bounds.id);
    },
    async generate(call, context) {
      const size = sizeOf(call);
      const { durationSeconds = defaults.durationSeconds, framesPerSecond = defaults.framesPerSecond } = call;
      return [
        await renderPool.render(
          {
            kind: 'storyboard',
            prompt: call.prompt,
            size,
            seed: String(call.seed ?? 0),
            durationSeconds,
            framesPerSecond,
          },
          context,
        ),
      ];
    },
  };
}

function sizeOf({ size, aspectRatio = defaults }: Pick<VideoCall, 'size' | 'aspectRatio'>): Size {
  const side = Math.sqrt(defaults.width * defaults.height);
  return size ?? sizeFor(aspectRatio, { side, step: 2, ...bounds });
}

function requirePixels(call: VideoCall): void {
  const { durationSeconds = defaults.durationSeconds, framesPerSecond = defaults.framesPerSecond } = call;
  const { width, height } = sizeOf(call);
  const maxDuration = maxPixels / (width * height * framesPerSecond);
  if (durationSeconds <= maxDuration) return;
  throw unsupportedMember(
    'duration_seconds',
    `The model ${bounds.id} generates ${Math.floor(maxDuration)} seconds at most at ${width}x${height} ` +
      `and ${framesPerSecond} frames a second.`,
  );
}
