// `local/flite`: English speech in this process. Small and a little mechanical, but real, free and without a network.
import type { SpeechCall, SpeechModel } from '../../media/model.ts';
import type { Workshop } from '../../media/workshop.ts';
import { unsupported } from './shapes.ts';

const voices = ['slt', 'kal', 'kal16', 'awb', 'rms'];
// Some six minutes of speech.
const longestText = 5_000;

export function fliteModel({ workshop }: { workshop: Workshop }): SpeechModel {
  return {
    async generate(call) {
      refuseUnsupported(call);
      const work = { kind: 'flite', text: speakable(call.text), voice: call.voice ?? 'slt', speed: call.speed ?? 1 } as const;
      const { content } = await workshop.make(work, { signal: call.signal, report: () => {} });
      return { format: 'wav', content: one(content) };
    },
  };
}

function refuseUnsupported({ voice, format = 'wav', language = 'en', instructions, text }: SpeechCall): void {
  if (voice !== undefined && !voices.includes(voice)) throw unsupported(`The model local/flite has the voices ${voices.join(', ')}.`, 'voice');
  if (format !== 'wav') throw unsupported('The model local/flite makes wav only.', 'format');
  if (!/^en(?:-|$)/i.test(language)) throw unsupported('The model local/flite speaks English only.', 'language');
  if (instructions !== undefined) throw unsupported('The model local/flite takes no instructions.', 'instructions');
  if (text.length > longestText) throw unsupported(`The model local/flite takes ${longestText} characters at most.`, 'text');
}

// The program reads plain English; signs that mean the same are written its way, and what it would skip is refused.
function speakable(text: string): string {
  const plain = text
    .replace(/[\u2018\u2019]/g, "'")
    .replace(/[\u201c\u201d]/g, '"')
    .replace(/[\u2013\u2014]/g, ' - ')
    .normalize('NFKD')
    .replace(/\p{M}/gu, '');
  const foreign = /[^\p{ASCII}]/u.exec(plain.replace(/[^\p{L}\p{N}\p{ASCII}]/gu, ' '))?.[0];
  if (foreign !== undefined) throw unsupported(`The model local/flite speaks English only, and cannot say "${foreign}".`, 'text');
  const clean = plain.replace(/[^\x20-\x7e]+/g, ' ').trim();
  if (!/[A-Za-z0-9]/.test(clean)) throw unsupported('There is nothing in the text that could be said.', 'text');
  return clean;
}

async function* one(content: Uint8Array): AsyncGenerator<Uint8Array> {
  yield content;
}
