// `local/storyboard`: a film of drawn scenes, one for each sentence of the prompt, by rules and no model.
import type { Size, VideoCall, VideoModel } from '../../hub/media-model.ts';
import type { RenderPool } from './renderer/render-pool.ts';
import { refuseForeign, requireDrawable, requireSide, sizeFor, unsupported } from './shapes.ts';

const bounds = { smallest: 64, largest: 1280, id: 'local/storyboard' };
const usual = { width: 640, height: 360, durationSeconds: 4, framesPerSecond: 12 };
const longestSeconds = 20;
const fastest = 30;
// Over all frames: 20 seconds of 640x360 at 30 frames a second, or 6 of 1280x720 at 24. Each million takes a tenth of a
// second to draw and to encode.
const mostPixels = 150_000_000;

export function storyboardModel({ renderPool }: { renderPool: RenderPool }): VideoModel {
  return {
    check(call) {
      refuseForeign(call, bounds.id);
      if (call.size) {
        requireSide(call.size, bounds);
        if (call.size.width % 2 !== 0 || call.size.height % 2 !== 0)
          throw unsupported(`The model ${bounds.id} makes frames of even width and height.`, 'size');
      }
      if ((call.durationSeconds ?? 0) > longestSeconds)
        throw unsupported(
          `The model ${bounds.id} makes ${longestSeconds} seconds at most.`,
          'duration_seconds',
        );
      if ((call.framesPerSecond ?? 0) > fastest)
        throw unsupported(`The model ${bounds.id} makes ${fastest} frames a second at most.`, 'fps');
      requirePixels(call);
      requireDrawable(call.prompt, sizeOf(call), bounds.id);
    },
    async generate(call, progress) {
      const size = sizeOf(call);
      const { durationSeconds = usual.durationSeconds, framesPerSecond = usual.framesPerSecond } = call;
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
          progress,
        ),
      ];
    },
  };
}

function sizeOf({ size, aspectRatio = usual }: Pick<VideoCall, 'size' | 'aspectRatio'>): Size {
  return size ?? sizeFor(aspectRatio, Math.sqrt(usual.width * usual.height), 2);
}

function requirePixels(call: VideoCall): void {
  const { durationSeconds = usual.durationSeconds, framesPerSecond = usual.framesPerSecond } = call;
  const { width, height } = sizeOf(call);
  const most = mostPixels / (width * height * framesPerSecond);
  if (durationSeconds <= most) return;
  throw unsupported(
    `The model ${bounds.id} makes ${Math.floor(most)} seconds at most at ${width}x${height} and ${framesPerSecond} frames a second.`,
    'duration_seconds',
  );
}
