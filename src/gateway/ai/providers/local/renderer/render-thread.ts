// Entry point of a render pool's thread: runs the task that it was started with, sends the file and exits.
import { parentPort, workerData } from 'node:worker_threads';
import type { MediaFile } from '../../../hub/media-model.ts';
import type { RenderMessage, RenderTask } from './render-pool.ts';
import { renderShapes } from './shapes.ts';
import { synthesizeSpeech } from './speech.ts';
import { renderStoryboard } from './storyboard.ts';

async function run(task: RenderTask): Promise<MediaFile> {
  switch (task.kind) {
    case 'shapes':
      return renderShapes(task);
    case 'storyboard':
      return renderStoryboard(task, (share) => send({ kind: 'progress', share }));
    case 'flite':
      return synthesizeSpeech(task);
  }
}

function send(message: RenderMessage): void {
  parentPort?.postMessage(message);
}

void run(workerData as RenderTask).then((file) => send({ kind: 'finished', file }));
