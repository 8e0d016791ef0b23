// A transcription in the formats of OpenAI's path: JSON, text, and subtitles.
import type {
  OpenAiTranscription,
  OpenAiTranscriptionForm,
  Transcription,
} from '../../../contract/gateway/types.gen.ts';

type TranscriptFormat = NonNullable<OpenAiTranscriptionForm['response_format']>;

export type Transcript =
  | { kind: 'json'; body: OpenAiTranscription }
  | { kind: 'text'; text: string; mediaType: 'text/plain' | 'text/vtt' };

export function toTranscript(transcription: Transcription, format: TranscriptFormat = 'json'): Transcript {
  switch (format) {
    case 'json':
      return { kind: 'json', body: { text: transcription.text } };
    case 'verbose_json':
      return { kind: 'json', body: toVerbose(transcription) };
    case 'text':
      return { kind: 'text', text: `${transcription.text}\n`, mediaType: 'text/plain' };
    case 'srt':
      return { kind: 'text', text: toSrt(transcription), mediaType: 'text/plain' };
    case 'vtt':
      return { kind: 'text', text: toVtt(transcription), mediaType: 'text/vtt' };
  }
}

function toVerbose({
  text,
  language,
  duration_seconds: seconds,
  segments,
}: Transcription): OpenAiTranscription {
  return {
    task: 'transcribe',
    text,
    language: language ?? '',
    duration: seconds ?? 0,
    segments: segments.map((segment, id) => ({
      id,
      start: segment.start_second,
      end: segment.end_second,
      text: segment.text,
    })),
  };
}

// Players never show a subtitle that ends when it begins, so one of unknown duration lasts a day.
const unknownDurationSeconds = 24 * 3600;

/** A transcription without segments becomes one subtitle. */
function toSubtitles({
  text,
  segments,
  duration_seconds: seconds,
}: Transcription): Transcription['segments'] {
  return segments.length > 0
    ? segments
    : [{ text, start_second: 0, end_second: seconds ?? unknownDurationSeconds }];
}

function toSrt(transcription: Transcription): string {
  return toSubtitles(transcription)
    .map(
      ({ text, start_second: start, end_second: end }, index) =>
        `${index + 1}\n${formatTimestamp(start, ',')} --> ${formatTimestamp(end, ',')}\n${toCueText(text)}\n`,
    )
    .join('\n');
}

function toVtt(transcription: Transcription): string {
  const cues = toSubtitles(transcription).map(
    ({ text, start_second: start, end_second: end }) =>
      `${formatTimestamp(start, '.')} --> ${formatTimestamp(end, '.')}\n${toCueText(text)}\n`,
  );
  return ['WEBVTT\n', ...cues].join('\n');
}

/** A player ends a cue at a blank line or at a line with `-->`. */
function toCueText(text: string): string {
  return text
    .replaceAll('-->', '->')
    .split(/[\r\n]+/)
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .join('\n');
}

/** Hours, minutes, seconds and milliseconds. */
function formatTimestamp(seconds: number, separator: ',' | '.'): string {
  const ms = Math.round(seconds * 1000);
  const part = (value: number, digits = 2) => String(Math.floor(value)).padStart(digits, '0');
  const clockTime = [ms / 3_600_000, (ms / 60_000) % 60, (ms / 1000) % 60]
    .map((value) => part(value))
    .join(':');
  return `${clockTime}${separator}${part(ms % 1000, 3)}`;
}
