// `local/storyboard`: a film of drawn scenes, one for each sentence of the prompt, by rules and no model.
import type { VideoModel } from '../../media/model.ts';
import type { Workshop } from '../../media/workshop.ts';
import { refuseForeign, requireSide, sizeFor, unsupported } from './shapes.ts';

const bounds = { smallest: 64, largest: 1280, id: 'local/storyboard' };
const usual = { width: 640, height: 360, durationSeconds: 4, framesPerSecond: 12 };
const longestSeconds = 20;
const fastest = 30;

export function storyboardModel({ workshop }: { workshop: Workshop }): VideoModel {
  return {
    check(call) {
      refuseForeign(call, bounds.id);
      if (call.size) {
        requireSide(call.size, bounds);
        if (call.size.width % 2 !== 0 || call.size.height % 2 !== 0) throw unsupported(`The model ${bounds.id} makes frames of even width and height.`, 'size');
      }
      if ((call.durationSeconds ?? 0) > longestSeconds) throw unsupported(`The model ${bounds.id} makes ${longestSeconds} seconds at most.`, 'duration_seconds');
      if ((call.framesPerSecond ?? 0) > fastest) throw unsupported(`The model ${bounds.id} makes ${fastest} frames a second at most.`, 'fps');
    },
    async generate(call, progress) {
      const size = call.size ?? sizeFor(call.aspectRatio ?? { width: usual.width, height: usual.height }, Math.sqrt(usual.width * usual.height), 2);
      const { durationSeconds = usual.durationSeconds, framesPerSecond = usual.framesPerSecond } = call;
      return [await workshop.make({ kind: 'storyboard', prompt: call.prompt, size, seed: String(call.seed ?? 0), durationSeconds, framesPerSecond }, progress)];
    },
  };
}
