// `local/flite`: English speech from Flite, a small classical synthesizer that runs in this process.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Problem } from '../../../../kernel/problem.ts';
import type { SpeechCall, SpeechModel } from '../../hub/media-model.ts';
import type { RenderPool } from './renderer/render-pool.ts';
import { unsupportedMember } from '../../hub/problems.ts';

export const fliteVoices = ['slt', 'kal', 'kal16', 'awb', 'rms'];
// About six minutes of speech at the usual speed.
const maxTextLength = 5_000;
// The maximum number of one user's texts that wait for a thread, since each keeps a connection open.
const maxWaiting = 8;

export function fliteModel({ renderPool }: { renderPool: RenderPool }): SpeechModel {
  return {
    async generate(call) {
      refuseUnsupported(call);
      const text = toPlainEnglish(call.text);
      requireLength(text, call.speed);
      const folder = await mkdtemp(join(tmpdir(), 'townhall-speech-'));
      try {
        // Check only now: nothing may be awaited between the count and the start of the task.
        if (renderPool.countWaiting(call.owner) >= maxWaiting) throw tooManyWaiting();
        const task = {
          kind: 'flite',
          text,
          voice: call.voice ?? 'slt',
          speed: call.speed ?? 1,
          folder,
        } as const;
        const { content } = await renderPool.render(task, {
          owner: call.owner,
          signal: call.signal,
          reportProgress: () => {},
        });
        return { format: 'wav', content: toStream(content) };
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

function tooManyWaiting(): Problem {
  return new Problem(
    'rate_limited',
    'rate_limited',
    `You already have ${maxWaiting} texts waiting for local/flite; try again when one of them has finished.`,
    { headers: { 'retry-after': '5' } },
  );
}

function requireLength(text: string, speed = 1): void {
  const maxLength = Math.floor(maxTextLength * Math.min(speed, 1));
  if (text.length > maxLength)
    throw unsupportedMember(
      'text',
      `The model local/flite accepts at most ${maxLength} characters${speed < 1 ? ' at this speed' : ''}.`,
    );
}

function refuseUnsupported({
  voice,
  format = 'wav',
  language = 'en',
  instructions,
  text,
  speed,
}: SpeechCall): void {
  if (voice !== undefined && !fliteVoices.includes(voice))
    throw unsupportedMember('voice', `The model local/flite has the voices ${fliteVoices.join(', ')}.`);
  if (format !== 'wav') throw unsupportedMember('format', 'The model local/flite produces only wav.');
  if (!/^en(?:-|$)/i.test(language))
    throw unsupportedMember('language', 'The model local/flite speaks English only.');
  if (instructions !== undefined)
    throw unsupportedMember('instructions', 'The model local/flite does not support instructions.');
  requireLength(text, speed);
}

/**
 * The text in ASCII, which is all that Flite reads: typographic signs and accents are replaced. Throws a 422
 * for letters that Flite would skip.
 */
function toPlainEnglish(text: string): string {
  const plainText = text
    .replace(/[\u2018\u2019]/g, "'")
    .replace(/[\u201c\u201d]/g, '"')
    .replace(/[\u2013\u2014]/g, ' - ')
    .normalize('NFKD')
    .replace(/\p{M}/gu, '');
  const skippedLetter = /[^\p{ASCII}]/u.exec(plainText.replace(/[^\p{L}\p{N}\p{ASCII}]/gu, ' '))?.[0];
  if (skippedLetter !== undefined)
    throw unsupportedMember(
      'text',
      `The model local/flite speaks English only, and cannot pronounce "${skippedLetter}".`,
    );
  const speakableText = plainText.replace(/[^\x20-\x7e]+/g, ' ').trim();
  if (!/[A-Za-z0-9]/.test(speakableText))
    throw unsupportedMember('text', 'The text has no letters or digits to speak.');
  return speakableText;
}

async function* toStream(content: Uint8Array): AsyncGenerator<Uint8Array> {
  yield content;
}
