// The entry of a workshop's thread: does the one piece of work that it was started with, says what came of it, and ends.
import { parentPort, workerData } from 'node:worker_threads';
import type { MediaFile } from '../../../hub/media-model.ts';
import { renderShapes } from './shapes.ts';
import { synthesizeSpeech } from './speech.ts';
import { renderStoryboard } from './storyboard.ts';
import type { RenderMessage, RenderTask } from './render-pool.ts';

async function make(work: RenderTask): Promise<MediaFile> {
  switch (work.kind) {
    case 'shapes':
      return renderShapes(work);
    case 'storyboard':
      return renderStoryboard(work, (done) => say({ kind: 'progress', done }));
    case 'flite':
      return synthesizeSpeech(work);
  }
}

function say(message: RenderMessage): void {
  parentPort?.postMessage(message);
}

void make(workerData as RenderTask).then((made) => say({ kind: 'made', made }));
