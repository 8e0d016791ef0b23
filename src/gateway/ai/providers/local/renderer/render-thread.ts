// The entry of a workshop's thread: does the one piece of work that it was started with, says what came of it, and ends.
import { parentPort, workerData } from 'node:worker_threads';
import type { Made } from '../../../hub/media-model.ts';
import { paintPicture } from './shapes.ts';
import { speak } from './speech.ts';
import { film } from './storyboard.ts';
import type { FromWorkshop, Work } from './render-pool.ts';

async function make(work: Work): Promise<Made> {
  switch (work.kind) {
    case 'shapes':
      return paintPicture(work);
    case 'storyboard':
      return film(work, (done) => say({ kind: 'progress', done }));
    case 'flite':
      return speak(work);
  }
}

function say(message: FromWorkshop): void {
  parentPort?.postMessage(message);
}

void make(workerData as Work).then((made) => say({ kind: 'made', made }));
