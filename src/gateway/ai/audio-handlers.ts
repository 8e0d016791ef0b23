// Handlers of speech synthesis and transcription, which answer at once.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { Call, Handlers, Reply } from '../../kernel/contract/operation.ts';
import type { Alongside } from '../credits/index.ts';
import type { Identity } from '../identity.ts';
import { attemptHeaders, type Attempts, type RunResult } from './attempts.ts';
import { viewerOf, type Catalog } from './catalog/catalog.ts';
import { creditsHeader } from './formats/passthrough/calls.ts';
import type { SpeechAnswer, SpeechFormat, TranscriptionAnswer } from './hub/media-model.ts';
import { ownerName, ownerOf } from './jobs/job.ts';
import { mediaTask } from './media-task.ts';
import { audioSeconds, billableSeconds } from './media/audio-duration.ts';
import { audioInputOf } from './media/audio-input.ts';
import { audioCharge, maxAudioSeconds } from './media/units.ts';
import type { Meter, Metering } from './metering/meter.ts';
import type { Units } from './metering/price.ts';
import type { MediaModels } from './providers/media-models.ts';
import { maxAnswerBytes } from './upstream/client.ts';
import { readAll } from './upstream/response-body.ts';

export interface AudioOptions {
  catalog: Catalog;
  attempts: Attempts;
  metering: Metering;
  models: MediaModels;
  /** To the first byte of an answer, over all attempts. */
  answerMs: number;
}

type AudioHandlers = Pick<Handlers<Operations, 'ai', Identity>, 'ai.synthesizeSpeech' | 'ai.transcribeAudio'>;
type SpeechCall = Call<Operations['ai.synthesizeSpeech'], Identity>;
type TranscriptionCall = Call<Operations['ai.transcribeAudio'], Identity>;
type AudioCall = Pick<SpeechCall, 'requestId' | 'identity' | 'signal' | 'log' | 'remember'>;

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
  const meter = openMeter(options, call, 'tts', { speechCharacter: [...call.body.text].length });
  const result = await runSpeech(options, call, meter);
  const { content, format } = result.answer;
  const mediaType = speechMediaTypes[format];
  const headers = attemptHeaders(result);
  if (!prefersJson(call.request.headers.accept)) {
    const charged = chargedStream(content, meter, (error) =>
      options.attempts.recordStreamFailure(result.model, error),
    );
    return { status: 200, content: charged, mediaType: mediaType as 'audio/wav', headers };
  }
  // A JSON answer is complete when it is charged, so it can be stored for its idempotency key in the same transaction.
  const audio = await readAll(content, maxAnswerBytes).catch(async (error: unknown) => {
    await settleForNothing(meter);
    throw error;
  });
  const body = {
    model: result.model.id,
    media_type: mediaType,
    audio: audio.toString('base64'),
    duration_seconds: audioSeconds(audio),
  };
  const credits = await meter.settle('completed', answerForKey(call, body));
  return { status: 200, body, headers: { ...headers, ...creditsHeader(credits) } };
}

function runSpeech(
  { catalog, attempts, models, answerMs }: AudioOptions,
  { identity, body, signal }: SpeechCall,
  meter: Meter,
): Promise<RunResult<SpeechAnswer>> {
  const { model: modelId, text, voice, format, speed, language, instructions } = body;
  const input = { text, voice, format, speed, language, instructions, owner: ownerName(ownerOf(identity)) };
  return meter.run(
    attempts,
    mediaTask(catalog, {
      viewer: viewerOf(identity),
      modelId,
      modality: 'tts',
      signal,
      deadlineMs: answerMs,
      async call(model, firstMs) {
        const answer = await models.speech(model, firstMs).generate({ ...input, signal: meter.signal });
        // From here on the provider synthesizes and charges the whole text, even if the client leaves.
        meter.uses({ speechCharacter: [...text].length });
        return answer;
      },
    }),
  );
}

async function transcribeAudio(
  options: AudioOptions,
  call: TranscriptionCall,
): Promise<Reply<Operations['ai.transcribeAudio']>> {
  const { audio, fileName } = audioInputOf(call.body);
  const bytes = audio.content.byteLength;
  const headerSeconds = billableSeconds(audio.content);
  const meter = openMeter(options, call, 'asr', { audioSecond: maxAudioSeconds(bytes, headerSeconds) });
  const result = await runTranscription(options, call, { audio, fileName, meter });
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
    if (reportedSeconds !== null && reportedSeconds > 0) meter.reportAlarm();
  }
  meter.uses(
    { audioSecond: charge.seconds },
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
  const credits = await meter.settle('completed', answerForKey(call, body));
  return { status: 200, body, headers: { ...attemptHeaders(result), ...creditsHeader(credits) } };
}

function runTranscription(
  { catalog, attempts, models, answerMs }: AudioOptions,
  { identity, body, signal }: TranscriptionCall,
  { audio, fileName, meter }: ReturnType<typeof audioInputOf> & { meter: Meter },
): Promise<RunResult<TranscriptionAnswer>> {
  const { model: modelId, language, prompt } = body;
  return meter.run(
    attempts,
    mediaTask(catalog, {
      viewer: viewerOf(identity),
      modelId,
      modality: 'asr',
      signal,
      deadlineMs: answerMs,
      call: (model, firstMs) =>
        models
          .transcription(model, firstMs)
          .generate({ audio, fileName, language, prompt, signal: meter.signal }),
    }),
  );
}

/** The meter of a call whose price depends on these units. */
function openMeter({ metering }: AudioOptions, call: AudioCall, action: string, units: Units): Meter {
  const { requestId, identity, signal, log, remember } = call;
  return metering.open({ requestId, identity, action, signal, log, demand: { units }, remember });
}

/**
 * The content, charged before its last byte is sent. Audio that breaks off is free, since it is worth nothing to the
 * client; audio that the client did not read to its end is charged, since it was synthesized.
 */
async function* chargedStream(
  content: AsyncIterable<Uint8Array>,
  meter: Meter,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
    await meter.settle('completed');
  } catch (error) {
    await settleForNothing(meter);
    onError(error);
    throw error;
  } finally {
    // Without effect on a call that is settled; reached first when the client leaves.
    await meter.settle('client_closed');
  }
}

async function settleForNothing(meter: Meter): Promise<void> {
  meter.uses({ speechCharacter: 0 });
  await meter.settle('upstream_failed');
}

function answerForKey({ remember }: AudioCall, body: unknown): Alongside | undefined {
  const answer = remember.inSettlement({ status: 200, body });
  return answer && { answer };
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
