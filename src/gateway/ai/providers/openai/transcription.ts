// Transcription by any server with OpenAI's transcription API.
import { asRecord } from '../../../../kernel/json-value.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { TranscriptionAnswer, TranscriptionCall, TranscriptionModel } from '../../hub/media-model.ts';
import type { ModelAccess } from '../adapter/model-access.ts';
import { multipartForm, type FormField } from './multipart-form.ts';
import { readJsonAnswer, sendMediaRequest } from './request.ts';
import { upstreamFailed } from '../../hub/problems.ts';

/** `tokensPerSecond` is the provider's number of audio tokens per second, for answers without a duration. */
export function openAiTranscriptionModel(
  model: CatalogModel,
  access: ModelAccess,
  tokensPerSecond: number | undefined,
): TranscriptionModel {
  return {
    async generate(call) {
      const form = multipartForm(transcriptionFields(call, model.upstream_model));
      const answer = await sendMediaRequest(access, {
        path: '/audio/transcriptions',
        ...form,
        signal: call.signal,
      });
      return transcriptionOf(await readJsonAnswer(answer), tokensPerSecond);
    },
  };
}

function transcriptionFields(
  { audio, fileName, language, prompt }: TranscriptionCall,
  modelName: string,
): [string, FormField][] {
  const fields: [string, FormField][] = [['model', modelName]];
  // Only Whisper models return segments; the others refuse a request for them.
  if (/whisper/i.test(modelName))
    fields.push(['response_format', 'verbose_json'], ['timestamp_granularities[]', 'segment']);
  else fields.push(['response_format', 'json']);
  if (language !== undefined) fields.push(['language', language]);
  if (prompt !== undefined) fields.push(['prompt', prompt]);
  fields.push(['file', { fileName, ...audio }]);
  return fields;
}

function transcriptionOf(answer: unknown, tokensPerSecond: number | undefined): TranscriptionAnswer {
  const { text, segments, language, duration, usage } = asRecord(answer);
  if (typeof text !== 'string')
    throw upstreamFailed('The model provider answered with something that is not a transcription.');
  return {
    text,
    segments: segmentsOf(segments),
    language: typeof language === 'string' ? languageTag(language) : null,
    durationSeconds: secondsOf(duration) ?? usageSeconds(usage, tokensPerSecond),
  };
}

function segmentsOf(segments: unknown): TranscriptionAnswer['segments'] {
  return (Array.isArray(segments) ? segments : []).flatMap((segment) => {
    const { text, start, end } = asRecord(segment);
    return typeof text === 'string' && isSeconds(start) && isSeconds(end)
      ? [{ text: text.trim(), startSecond: start, endSecond: end }]
      : [];
  });
}

/**
 * The seconds in the usage of an answer: OpenAI's `seconds` or audio tokens,
 * Mistral's `prompt_audio_seconds`.
 */
function usageSeconds(usage: unknown, tokensPerSecond: number | undefined): number | null {
  const { seconds, prompt_audio_seconds: promptSeconds, input_token_details: details } = asRecord(usage);
  const reportedSeconds = [seconds, promptSeconds].find(isSeconds);
  if (reportedSeconds !== undefined) return reportedSeconds;
  const { audio_tokens: tokens } = asRecord(details);
  return tokensPerSecond !== undefined && isSeconds(tokens) ? tokens / tokensPerSecond : null;
}

/** A duration as a number or, as some servers send it, as a string; null for anything else. */
function secondsOf(duration: unknown): number | null {
  // Number('') is 0, which would make the call free.
  const seconds = typeof duration === 'string' && duration.trim() !== '' ? Number(duration) : duration;
  return isSeconds(seconds) ? seconds : null;
}

function isSeconds(candidate: unknown): candidate is number {
  return typeof candidate === 'number' && Number.isFinite(candidate) && candidate >= 0;
}

/** The tag of a language; some servers send "english" where others send "en". Null for an unknown name. */
function languageTag(language: string): string | null {
  if (/^[a-z]{2,3}(?:-[a-z0-9]+)*$/i.test(language)) return language;
  const names = new Intl.DisplayNames('en', { type: 'language', fallback: 'none' });
  const alphabet = [...'abcdefghijklmnopqrstuvwxyz'];
  const tags = alphabet.flatMap((first) => alphabet.map((second) => first + second));
  return tags.find((tag) => names.of(tag)?.toLowerCase() === language.toLowerCase()) ?? null;
}
