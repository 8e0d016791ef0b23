// Handlers of OpenAI's audio paths. They call our own audio operations and answer in OpenAI's format.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import type { Identity } from '../../identity.ts';
import { type AiHandlers, creditsHeader, settleAndRender } from '../calls/context.ts';
import { type AudioOptions, streamSpeech, transcribe } from './audio.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { toTranscript } from '../media/openai-transcript.ts';
import { unsupportedMember } from '../hub/problems.ts';

type SpeechCall = Call<Operations['ai.synthesizeClientSpeech'], Identity>;
type TranscriptionCall = Call<Operations['ai.transcribeClientAudio'], Identity>;

export function openAiAudioHandlers(
  options: AudioOptions,
): Pick<AiHandlers, 'ai.synthesizeClientSpeech' | 'ai.transcribeClientAudio'> {
  return {
    'ai.synthesizeClientSpeech': (call) =>
      withMemberNames(speechMember, () => streamSpeech(options, call, toSpeechRequest(call.body))),
    'ai.transcribeClientAudio': (call) => transcribeAudio(options, call),
  };
}

const speechMember: RenameMember = (member) =>
  ({ text: 'input', format: 'response_format' })[member as 'text' | 'format'];

function toSpeechRequest({
  model,
  input,
  voice,
  response_format: format,
  speed,
  instructions,
}: SpeechCall['body']) {
  return {
    model,
    text: input,
    ...(voice === undefined ? {} : { voice }),
    ...(format === undefined ? {} : { format }),
    ...(speed === undefined ? {} : { speed }),
    ...(instructions === undefined ? {} : { instructions }),
  };
}

async function transcribeAudio(
  options: AudioOptions,
  call: TranscriptionCall,
): Promise<Reply<Operations['ai.transcribeClientAudio']>> {
  const { model, file, language, prompt, response_format: format } = call.body;
  refuseUnsupported(call.body);
  const { transcription, headers, bill } = await transcribe(options, call, {
    model,
    file,
    ...(language === undefined ? {} : { language }),
    ...(prompt === undefined ? {} : { prompt }),
  });
  const transcript = toTranscript(transcription, format);
  if (transcript.kind === 'json') {
    const rendered = await settleAndRender(call, bill, (credits) => ({
      body: transcript.body,
      headers: { ...headers, ...creditsHeader(credits) },
    }));
    return { status: 200, ...rendered };
  }
  // Only JSON answers are stored for a replay; text and subtitles are not, like streamed speech.
  const credits = await bill.settle('completed');
  return {
    status: 200,
    content: Buffer.from(transcript.text),
    mediaType: `${transcript.mediaType}; charset=utf-8`,
    headers: { ...headers, ...creditsHeader(credits) },
  } as Reply<Operations['ai.transcribeClientAudio']>;
}

/**
 * Throws a 422 for options that no transcription model here supports: ignoring one would change the
 * result without notice.
 */
function refuseUnsupported({
  temperature,
  'timestamp_granularities[]': granularities = [],
}: TranscriptionCall['body']): void {
  if (temperature !== undefined && Number(temperature) !== 0)
    throw unsupportedMember(
      'temperature',
      'A temperature other than 0 is not supported; leave out temperature.',
    );
  if (granularities.includes('word'))
    throw unsupportedMember('timestamp_granularities[]', 'Word timestamps are not supported; use segment.');
}
