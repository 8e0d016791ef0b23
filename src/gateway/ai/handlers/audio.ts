// Handlers of speech synthesis and transcription, which respond without a job.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Transcription } from '../../../contract/gateway/types.gen.ts';
import type { Call, Handlers, Reply } from '../../../kernel/contract/operation.ts';
import type { Identity } from '../../identity.ts';
import {
  type AiContext,
  creditsHeader,
  openBill,
  type PaidRequest,
  type RenderedAnswer,
  settleAndRender,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import { attemptHeaders, callModel, type ModelResult } from '../calls/call.ts';
import { viewerOf } from '../catalog/catalog.ts';
import type { SpeechAnswer, SpeechFormat, TranscriptionAnswer } from '../hub/media-model.ts';
import { ownerKey, ownerOf } from '../calls/owner.ts';
import { mediaRequest } from '../calls/media-request.ts';
import { audioSeconds } from '../media/audio-duration.ts';
import { audioInputOf } from '../media/audio-input.ts';
import { billableSeconds } from '../media/billable-audio.ts';
import { audioCharge, maxAudioSeconds } from '../media/units.ts';
import type { MediaModels } from '../providers/media-models.ts';
import { maxAnswerBytes } from '../upstream/client.ts';
import { readAll } from '../upstream/response-body.ts';

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
  if (!prefersJson(call.request.headers.accept)) return streamSpeech(options, call, call.body);
  const rendered = await renderWholeSpeech(options, call, {
    body: call.body,
    render: (audio, { format }, model) => ({
      model,
      media_type: speechMediaTypes[format],
      audio: audio.toString('base64'),
      duration_seconds: audioSeconds(audio),
    }),
  });
  return { status: 200, ...rendered };
}

/**
 * Synthesizes the whole audio and renders the answer with `render`. Unlike streamed audio, it is complete
 * when it is charged, so the same transaction can store it for a replay under the Idempotency-Key.
 */
export async function renderWholeSpeech<T>(
  options: AudioOptions,
  call: PaidRequest,
  {
    body,
    render,
  }: { body: SpeechCall['body']; render: (audio: Buffer, answer: SpeechAnswer, model: string) => T },
): Promise<RenderedAnswer<T>> {
  const { bill, result } = await startSpeech(options, call, body);
  const audio = await readAll(result.answer.content, maxAnswerBytes).catch(async (error: unknown) => {
    await settleWithoutCharge(bill);
    throw error;
  });
  return settleAndRender(call, bill, (credits) => ({
    body: render(audio, result.answer, result.model.id),
    headers: { ...attemptHeaders(result), ...creditsHeader(credits) },
  }));
}

/** Replies with the audio as a stream, which is charged before it ends. */
export async function streamSpeech(
  options: AudioOptions,
  call: PaidRequest,
  body: SpeechCall['body'],
): Promise<SpeechReply> {
  const { bill, result } = await startSpeech(options, call, body);
  const { content, format } = result.answer;
  const chargedContent = chargeStream(content, bill, (error) =>
    options.health.recordStreamFailure(result, error),
  );
  return {
    status: 200,
    content: chargedContent,
    // The reply type is a union with one member for each media type, which a variable does not narrow.
    mediaType: speechMediaTypes[format] as 'audio/wav',
    headers: attemptHeaders(result),
  };
}

export interface SpeechReply {
  status: 200;
  content: AsyncIterable<Uint8Array>;
  mediaType: 'audio/wav';
  headers: Record<string, string>;
}

async function startSpeech(
  options: AudioOptions,
  call: PaidRequest,
  body: SpeechCall['body'],
): Promise<{ bill: Bill; result: ModelResult<SpeechAnswer> }> {
  requireModel(options, call.identity, { modelId: body.model, modality: 'tts' });
  const units = speechUnits(body);
  const bill = openBill(options, call, { action: 'tts', demand: { units }, unitsIfDisconnected: units });
  return { bill, result: await runSpeech(options, call, { body, bill }) };
}

/** Characters of the text and of the instructions, since the model reads both. */
function speechUnits({ text, instructions = '' }: SpeechCall['body']): { speechCharacter: number } {
  return { speechCharacter: [...text].length + [...instructions].length };
}

// Providers charge for the prompt too. It is billed as seconds of audio: the longest prompt, 8,000 characters
// or about 2,000 tokens, as 53 seconds.
const promptCharactersPerSecond = 150;

function secondsOfPrompt(prompt = ''): number {
  return prompt.length / promptCharactersPerSecond;
}

/** Throws the 404 or 422 of a model that cannot be called, before a bill is opened for the call. */
function requireModel(
  { catalog }: AudioOptions,
  identity: Identity,
  { modelId, modality }: { modelId: string; modality: 'tts' | 'asr' },
): void {
  catalog.chain(viewerOf(identity), modelId, modality);
}

function runSpeech(
  options: AudioOptions,
  { identity, signal }: PaidRequest,
  { body, bill }: { body: SpeechCall['body']; bill: Bill },
): Promise<ModelResult<SpeechAnswer>> {
  const { model: modelId, text, voice, format, speed, language, instructions } = body;
  const owner = ownerKey(ownerOf(identity));
  const input = { text, voice, format, speed, language, instructions, owner };
  const request = mediaRequest(options.catalog, {
    viewer: viewerOf(identity),
    modelId,
    modality: 'tts',
    signal,
    deadlineMs: options.timeouts.answerMs,
    async send(attempt) {
      const answer = await options.models
        .speech(attempt.model, attempt)
        .generate({ ...input, signal: bill.signal });
      // From here on the provider synthesizes and charges the whole text, even if the client disconnects.
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
  const { transcription, headers, bill } = await transcribe(options, call, call.body);
  const rendered = await settleAndRender(call, bill, (credits) => ({
    body: transcription,
    headers: { ...headers, ...creditsHeader(credits) },
  }));
  return { status: 200, ...rendered };
}

export interface TranscriptionResult {
  transcription: Transcription;
  headers: Record<string, string>;
  /** Not settled yet: the handler settles it together with the answer that is stored for a replay. */
  bill: Bill;
}

export async function transcribe(
  options: AudioOptions,
  call: PaidRequest,
  request: TranscriptionCall['body'],
): Promise<TranscriptionResult> {
  const { audio, fileName } = audioInputOf(request);
  const bytes = audio.content.byteLength;
  const headerSeconds = billableSeconds(audio.content);
  requireModel(options, call.identity, { modelId: request.model, modality: 'asr' });
  const promptSeconds = secondsOfPrompt(request.prompt);
  const demand = { units: { audioSecond: maxAudioSeconds(bytes, headerSeconds) + promptSeconds } };
  const chargeWithoutReport = audioCharge({ reportedSeconds: null, headerSeconds, bytes });
  const unitsIfDisconnected = { audioSecond: chargeWithoutReport.seconds + promptSeconds };
  const bill = openBill(options, call, { action: 'asr', demand, unitsIfDisconnected });
  const result = await runTranscription(options, call, { request, audio, fileName, bill });
  const reportedSeconds = result.answer.durationSeconds;
  const charge = audioCharge({ reportedSeconds, headerSeconds, bytes });
  if (charge.source === 'implausible') reportImplausible(call, bill, { result, maxSeconds: charge.seconds });
  bill.recordUnits(
    { audioSecond: charge.seconds + promptSeconds },
    { estimated: charge.source === 'implausible' || charge.source === 'size' },
  );
  const seconds = charge.source === 'provider' ? charge.seconds : audioSeconds(audio.content);
  return {
    transcription: toTranscription(result.answer, seconds),
    headers: attemptHeaders(result),
    bill,
  };
}

function toTranscription(
  { text, segments, language }: TranscriptionAnswer,
  durationSeconds: number | null,
): Transcription {
  return {
    text,
    segments: segments.map(({ text: words, startSecond, endSecond }) => ({
      text: words,
      start_second: startSecond,
      end_second: endSecond,
    })),
    language,
    duration_seconds: durationSeconds,
  };
}

function reportImplausible(
  { log }: PaidRequest,
  bill: Bill,
  { result, maxSeconds }: { result: ModelResult<TranscriptionAnswer>; maxSeconds: number },
): void {
  const { durationSeconds } = result.answer;
  log.error(
    { alarm: 'unbelievable_usage', model: result.model.id, durationSeconds, most: maxSeconds },
    'a provider reported an impossible duration; the held credits are charged',
  );
  if (durationSeconds !== null && durationSeconds > 0) bill.reportAlarm();
}

function runTranscription(
  options: AudioOptions,
  { identity, signal }: PaidRequest,
  input: ReturnType<typeof audioInputOf> & { request: TranscriptionCall['body']; bill: Bill },
): Promise<ModelResult<TranscriptionAnswer>> {
  const { audio, fileName, bill } = input;
  const { model: modelId, language, prompt } = input.request;
  const request = mediaRequest(options.catalog, {
    viewer: viewerOf(identity),
    modelId,
    modality: 'asr',
    signal,
    deadlineMs: options.timeouts.answerMs,
    send: (attempt) =>
      options.models
        .transcription(attempt.model, attempt)
        .generate({ audio, fileName, language, prompt, signal: bill.signal }),
  });
  return callModel(request, { ...options, bill });
}

/**
 * Yields the content and charges it before the stream ends. Truncated audio is free, because the client
 * cannot use it. Audio that the client did not read to its end is charged, because it was synthesized.
 */
async function* chargeStream(
  content: AsyncIterable<Uint8Array>,
  bill: Bill,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
    await bill.settle('completed');
  } catch (error) {
    bill.noteFailure(error);
    await settleWithoutCharge(bill);
    onError(error);
    throw error;
  } finally {
    // Only settles the call when the client disconnects; in the other cases it is settled already.
    await bill.settle('client_closed');
  }
}

/** Settles a call whose audio the client cannot use. */
async function settleWithoutCharge(bill: Bill): Promise<void> {
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

/**
 * Whether the Accept header contains JSON and no audio type. Most clients accept any type and get the audio.
 */
function prefersJson(accept: string | string[] | undefined): boolean {
  const types = String(accept ?? '').toLowerCase();
  return types.includes('application/json') && !types.includes('audio/');
}
