// Pictures, speech and recognition at any server that speaks OpenAI's format. What was asked for goes out as it is, so
// that a provider refuses what it cannot do; the format is three small requests, and the library for it would leave
// members out that it does not know.
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type {
  ImageCall,
  ImageModel,
  MediaFile,
  SpeechFormat,
  SpeechModel,
  TranscriptionAnswer,
  TranscriptionModel,
} from '../../hub/media-model.ts';
import { detectImage } from '../../media/image-type.ts';
import { findForm } from '../../upstream/member-names.ts';
import { topLevelMembers } from '../../upstream/json-members.ts';
import { refuseUnsafeMembers } from '../../upstream/request-guard.ts';
import { maxAnswerBytes, type Upstream } from '../../upstream/client.ts';
import { readAll } from '../../upstream/response-body.ts';
import { multipartForm, type FormField } from './multipart-form.ts';
import type { ModelAccess } from '../sdk-model.ts';

export function openAiImageModel(model: CatalogModel, needs: ModelAccess): ImageModel {
  return {
    check({ options }) {
      refuseUnsafeMembers(options, model.providerEntry, { path: 'provider_options' });
      const decided = findForm(Object.keys(options), decidedByCall);
      if (decided === undefined) return;
      throw new Problem(
        'bad_request',
        'invalid_request',
        `The member provider_options.${decided} is refused; there is a member of the request for it.`,
        { param: `provider_options.${decided}` },
      );
    },
    async generate(call, { signal }) {
      const members = imageMembers(call, model);
      if (call.images.length === 0)
        return made(await answerOf('/images/generations', { body: JSON.stringify(members) }, signal));
      const fields = Object.entries(members).map(([name, value]): [string, FormField] => [
        name,
        typeof value === 'string' ? value : JSON.stringify(value),
      ]);
      const files = call.images.map(({ content, mediaType }, index): [string, FormField] => [
        'image[]',
        { fileName: `image-${index + 1}.${mediaType.split('/')[1]}`, mediaType, content },
      ]);
      return made(await answerOf('/images/edits', multipartForm([...fields, ...files]), signal));
    },
  };

  async function answerOf(path: string, sent: Sent, signal: AbortSignal): Promise<unknown> {
    return jsonAnswer(await send(needs, { path, ...sent, signal }));
  }
}

const decidedByCall = [
  'model',
  'prompt',
  'n',
  'size',
  'aspect_ratio',
  'seed',
  'image',
  'images',
  'image[]',
  'response_format',
  'stream',
  'partial_images',
];

function imageMembers(
  { prompt, count, size, aspectRatio, seed, options }: ImageCall,
  { upstream_model: name }: CatalogModel,
): Record<string, unknown> {
  return {
    ...options,
    model: name,
    prompt,
    n: count,
    ...(size === undefined ? {} : { size: `${size.width}x${size.height}` }),
    ...(aspectRatio === undefined ? {} : { aspect_ratio: `${aspectRatio.width}:${aspectRatio.height}` }),
    ...(seed === undefined ? {} : { seed }),
    // These models answer with the bytes always, and refuse to be asked for them.
    ...(/^(?:chatgpt|gpt)-image/.test(name) ? {} : { response_format: 'b64_json' }),
  };
}

function made(answer: unknown): MediaFile[] {
  const { data } = (answer ?? {}) as { data?: unknown };
  const images = (Array.isArray(data) ? data : []).map((item) =>
    pictureOf((item as { b64_json?: unknown } | null)?.b64_json),
  );
  if (images.length === 0) throw failed('The model provider answered without an image.');
  return images;
}

// The server never follows an address, a provider's neither: an answer has to bring its bytes along.
function pictureOf(base64: unknown): MediaFile {
  if (typeof base64 !== 'string')
    throw failed('The model provider answered with an image that is somewhere else.');
  const content = new Uint8Array(Buffer.from(base64, 'base64'));
  const examined = detectImage(content);
  if (examined === null) throw failed('The model provider answered with something that is not an image.');
  return { ...examined, content, durationSeconds: null };
}

export function openAiSpeechModel(model: CatalogModel, needs: ModelAccess): SpeechModel {
  return {
    async generate({ text, voice = 'alloy', format = 'mp3', speed, language, instructions, signal }) {
      const members = {
        model: model.upstream_model,
        input: text,
        voice,
        response_format: format,
        speed,
        language,
        instructions,
      };
      const answer = await send(needs, {
        path: '/audio/speech',
        body: JSON.stringify(members),
        headers: { accept: 'audio/*' },
        signal,
      });
      if (!/^audio\/|^application\/octet-stream$/.test(answer.mediaType)) {
        answer.abort();
        throw failed('The model provider did not answer with sound.');
      }
      return { format: format satisfies SpeechFormat, content: answer.body };
    },
  };
}

export function openAiTranscriptionModel(model: CatalogModel, needs: ModelAccess): TranscriptionModel {
  // Only these tell segments; others refuse to be asked for them.
  const tellsSegments = /whisper/i.test(model.upstream_model);
  return {
    async generate({ audio, fileName, language, prompt, signal }) {
      const fields: [string, FormField][] = [
        ['model', model.upstream_model],
        ['response_format', tellsSegments ? 'verbose_json' : 'json'],
        ...(tellsSegments ? ([['timestamp_granularities[]', 'segment']] as [string, FormField][]) : []),
        ...(language === undefined ? [] : ([['language', language]] as [string, FormField][])),
        ...(prompt === undefined ? [] : ([['prompt', prompt]] as [string, FormField][])),
        ['file', { fileName, ...audio }],
      ];
      const answer = await jsonAnswer(
        await send(needs, { path: '/audio/transcriptions', ...multipartForm(fields), signal }),
      );
      return transcriptionOf(answer, model.providerEntry.kind);
    },
  };
}

interface Transcribed {
  text?: unknown;
  segments?: unknown;
  language?: unknown;
  duration?: unknown;
  usage?: unknown;
}

function transcriptionOf(answer: unknown, kind: CatalogModel['providerEntry']['kind']): TranscriptionAnswer {
  const { text, segments, language, duration, usage } = (answer ?? {}) as Transcribed;
  if (typeof text !== 'string')
    throw failed('The model provider answered with something that is not a transcription.');
  const told = (Array.isArray(segments) ? segments : []) as {
    text?: unknown;
    start?: unknown;
    end?: unknown;
  }[];
  return {
    text,
    segments: told.flatMap((segment) =>
      typeof segment.text === 'string' && isSecond(segment.start) && isSecond(segment.end)
        ? [{ text: segment.text.trim(), startSecond: segment.start, endSecond: segment.end }]
        : [],
    ),
    language: typeof language === 'string' ? languageTag(language) : null,
    durationSeconds: isSecond(duration)
      ? duration
      : isSecond(Number(duration)) && typeof duration === 'string'
        ? Number(duration)
        : billedSeconds(usage, kind),
  };
}

// OpenAI makes a token of 100 ms.
const openAiTokensPerSecond = 10;

/** The seconds that the usage of the answer tells: OpenAI's `seconds` or tokens of sound, or Mistral's `prompt_audio_seconds`. */
function billedSeconds(usage: unknown, kind: CatalogModel['providerEntry']['kind']): number | null {
  const {
    seconds,
    prompt_audio_seconds: promptSeconds,
    input_token_details: details,
  } = (usage ?? {}) as Record<string, unknown>;
  const reportedSeconds = [seconds, promptSeconds].find(isSecond);
  if (reportedSeconds !== undefined) return reportedSeconds;
  const { audio_tokens: tokens } = (details ?? {}) as Record<string, unknown>;
  return kind === 'openai' && isSecond(tokens) ? tokens / openAiTokensPerSecond : null;
}

function isSecond(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

// Some say "english" where others say "en".
function languageTag(said: string): string | null {
  if (/^[a-z]{2,3}(?:-[a-z0-9]+)*$/i.test(said)) return said;
  const names = new Intl.DisplayNames('en', { type: 'language', fallback: 'none' });
  const alphabet = [...'abcdefghijklmnopqrstuvwxyz'];
  const tags = alphabet.flatMap((first) => alphabet.map((second) => first + second));
  return tags.find((tag) => names.of(tag)?.toLowerCase() === said.toLowerCase()) ?? null;
}

async function jsonAnswer(answer: Awaited<ReturnType<Upstream['send']>>): Promise<unknown> {
  const bytes = await readAll(answer.body, maxAnswerBytes);
  if (topLevelMembers(bytes) === undefined)
    throw failed(
      'The model provider answered with something that is not a JSON object, or one of too many parts.',
    );
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw new Problem(
      'upstream_failed',
      'upstream_failed',
      'The model provider answered with something that is not JSON.',
      { cause },
    );
  }
}

interface Sent {
  body: string | Uint8Array;
  headers?: Readonly<Record<string, string>>;
}

function send(
  { upstream, baseUrl, ...access }: ModelAccess,
  { path, ...sent }: Sent & { path: string; signal: AbortSignal },
): ReturnType<Upstream['send']> {
  return upstream.send({ url: `${baseUrl}${path}`, ...access, ...sent, streams: false });
}

function failed(message: string): Problem {
  return new Problem('upstream_failed', 'upstream_failed', message);
}
