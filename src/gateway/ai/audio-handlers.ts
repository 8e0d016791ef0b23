// Handlers of speech synthesis and transcription, which answer at once.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { Call, Handlers, Reply } from '../../kernel/contract/operation.ts';
import type { Identity } from '../identity.ts';
import { type AiContext, answerForReplay, creditsHeader, openBill } from './ai-context.ts';
import type { Bill } from './billing/bill.ts';
import { attemptHeaders, callModel, type ModelResult } from './call.ts';
import { viewerOf } from './catalog/catalog.ts';
import type { SpeechAnswer, SpeechFormat, TranscriptionAnswer } from './hub/media-model.ts';
import { ownerName, ownerOf } from './jobs/job.ts';
import { mediaRequest } from './media-request.ts';
import { audioSeconds } from './media/audio-duration.ts';
import { audioInputOf } from './media/audio-input.ts';
import { billableSeconds } from './media/billable-audio.ts';
import { audioCharge, maxAudioSeconds } from './media/units.ts';
import type { MediaModels } from './providers/media-models.ts';
import { maxAnswerBytes } from './upstream/client.ts';
import { readAll } from './upstream/response-body.ts';

export interface AudioOptions extends AiContext {
  models: MediaModels;
}

type AudioHandlers = Pick<Handlers<Operations, 'ai', Identity>, 'ai.synthesizeSpeech' | 'ai.transcribeAudio'>;
type SpeechCall = Call<Operations['ai.synthesizeSpeech'], Identity>;
type TranscriptionCall = Call<Operations['ai.transcribeAudio'], Identity>;

export function audioHandlers(options: AudioOptions): AudioHandlers {
  return {
    'ai.synthesizeSpeech': (call) => synthesizeSpeech(options, call),
    'ai.transcribeAudio': (call) => transcribeAudio(options, call),
  };
}

async function synthesizeSpeech(
  options: AudioOptions,
  call: SpeechCall,
): Promise<Reply<Operations['ai.synthesizeSpeech']>> {
  requireModel(options, call, 'tts');
  const units = speechUnits(call.body);
  const bill = openBill(options, call, { action: 'tts', demand: { units }, unitsIfLeft: units });
  const result = await runSpeech(options, call, bill);
  const { content, format } = result.answer;
  const mediaType = speechMediaTypes[format];
  const headers = attemptHeaders(result);
  if (!prefersJson(call.request.headers.accept)) {
    const charged = chargedStream(content, bill, (error) =>
      options.health.recordStreamFailure(result.model, error),
    );
    return { status: 200, content: charged, mediaType: mediaType as 'audio/wav', headers };
  }
  // A JSON answer is complete when it is charged, so it can be stored for its idempotency key in the same transaction.
  const audio = await readAll(content, maxAnswerBytes).catch(async (error: unknown) => {
    await settleForNothing(bill);
    throw error;
  });
  const body = {
    model: result.model.id,
    media_type: mediaType,
    audio: audio.toString('base64'),
    duration_seconds: audioSeconds(audio),
  };
  const credits = await bill.settle('completed', answerForReplay(call, body));
  return { status: 200, body, headers: { ...headers, ...creditsHeader(credits) } };
}

/** The model reads the instructions as it reads the text. */
function speechUnits({ text, instructions = '' }: SpeechCall['body']): { speechCharacter: number } {
  return { speechCharacter: [...text].length + [...instructions].length };
}

// Providers charge the text of a prompt like a few seconds of audio: 2,000 tokens like 50 seconds.
const promptCharactersPerSecond = 150;

function secondsOfPrompt(prompt = ''): number {
  return prompt.length / promptCharactersPerSecond;
}

/** Throws the 404 and 422 of a model that cannot be called, before the call has a bill. */
function requireModel(
  { catalog }: AudioOptions,
  { identity, body }: SpeechCall | TranscriptionCall,
  modality: 'tts' | 'asr',
): void {
  catalog.chain(viewerOf(identity), body.model, modality);
}

function runSpeech(options: AudioOptions, call: SpeechCall, bill: Bill): Promise<ModelResult<SpeechAnswer>> {
  const { identity, body, signal } = call;
  const { model: modelId, text, voice, format, speed, language, instructions } = body;
  const input = { text, voice, format, speed, language, instructions, owner: ownerName(ownerOf(identity)) };
  const request = mediaRequest(options.catalog, {
    viewer: viewerOf(identity),
    modelId,
    modality: 'tts',
    signal,
    deadlineMs: options.timeouts.answerMs,
    async call(model, firstMs) {
      const answer = await options.models.speech(model, firstMs).generate({ ...input, signal: bill.signal });
      // From here on the provider synthesizes and charges the whole text, even if the client leaves.
      bill.recordUnits(speechUnits(body));
      return answer;
    },
  });
  return callModel(request, { ...options, bill });
}

async function transcribeAudio(
  options: AudioOptions,
  call: TranscriptionCall,
): Promise<Reply<Operations['ai.transcribeAudio']>> {
  const { audio, fileName } = audioInputOf(call.body);
  const bytes = audio.content.byteLength;
  const headerSeconds = billableSeconds(audio.content);
  requireModel(options, call, 'asr');
  const promptSeconds = secondsOfPrompt(call.body.prompt);
  const demand = { units: { audioSecond: maxAudioSeconds(bytes, headerSeconds) + promptSeconds } };
  const silentCharge = audioCharge({ reportedSeconds: null, headerSeconds, bytes });
  const unitsIfLeft = { audioSecond: silentCharge.seconds + promptSeconds };
  const bill = openBill(options, call, { action: 'asr', demand, unitsIfLeft });
  const result = await runTranscription(options, call, { audio, fileName, bill });
  const { text, segments, language, durationSeconds: reportedSeconds } = result.answer;
  const charge = audioCharge({ reportedSeconds, headerSeconds, bytes });
  if (charge.source === 'implausible') {
    call.log.error(
      {
        alarm: 'unbelievable_usage',
        model: result.model.id,
        durationSeconds: reportedSeconds,
        most: charge.seconds,
      },
      'a provider told a duration that cannot be; what was held is charged',
    );
    if (reportedSeconds !== null && reportedSeconds > 0) bill.reportAlarm();
  }
  bill.recordUnits(
    { audioSecond: charge.seconds + promptSeconds },
    { estimated: charge.source === 'implausible' || charge.source === 'size' },
  );
  const body = {
    text,
    segments: segments.map(({ text: words, startSecond, endSecond }) => ({
      text: words,
      start_second: startSecond,
      end_second: endSecond,
    })),
    language,
    duration_seconds: charge.source === 'provider' ? charge.seconds : audioSeconds(audio.content),
  };
  const credits = await bill.settle('completed', answerForReplay(call, body));
  return { status: 200, body, headers: { ...attemptHeaders(result), ...creditsHeader(credits) } };
}

function runTranscription(
  options: AudioOptions,
  { identity, body, signal }: TranscriptionCall,
  { audio, fileName, bill }: ReturnType<typeof audioInputOf> & { bill: Bill },
): Promise<ModelResult<TranscriptionAnswer>> {
  const { model: modelId, language, prompt } = body;
  const request = mediaRequest(options.catalog, {
    viewer: viewerOf(identity),
    modelId,
    modality: 'asr',
    signal,
    deadlineMs: options.timeouts.answerMs,
    call: (model, firstMs) =>
      options.models
        .transcription(model, firstMs)
        .generate({ audio, fileName, language, prompt, signal: bill.signal }),
  });
  return callModel(request, { ...options, bill });
}

/**
 * The content, charged before its last byte is sent. Audio that breaks off is free, since it is worth nothing to the
 * client; audio that the client did not read to its end is charged, since it was synthesized.
 */
async function* chargedStream(
  content: AsyncIterable<Uint8Array>,
  bill: Bill,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
    await bill.settle('completed');
  } catch (error) {
    await settleForNothing(bill);
    onError(error);
    throw error;
  } finally {
    // Without effect on a call that is settled; reached first when the client leaves.
    await bill.settle('client_closed');
  }
}

async function settleForNothing(bill: Bill): Promise<void> {
  bill.recordUnits({ speechCharacter: 0 });
  await bill.settle('upstream_failed');
}

const speechMediaTypes = {
  wav: 'audio/wav',
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  pcm: 'audio/pcm',
} as const satisfies Record<SpeechFormat, string>;

/** Whether the Accept header names JSON and no audio. Most clients accept anything and get the audio. */
function prefersJson(accept: string | string[] | undefined): boolean {
  const types = String(accept ?? '').toLowerCase();
  return types.includes('application/json') && !types.includes('audio/');
}
