// Handlers of the AI SDK's image, speech and transcription models. They call our own operations and answer
// in the SDK's format.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import type { Identity } from '../../identity.ts';
import { type AiHandlers, creditsHeader, settleAndRender } from '../calls/context.ts';
import { type AudioOptions, transcribe, renderWholeSpeech } from './audio.ts';
import { viewerOf } from '../catalog/catalog.ts';
import { optionsFor, toImageRequest, toSdkTranscription, toSpeechRequest } from '../media/sdk-media.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { type OpenAiImageOptions, readMedia, runImageJob } from './openai-images.ts';

export type SdkMediaOptions = AudioOptions & OpenAiImageOptions;

type ImagesOperation = Operations['ai.generateSdkImages'];
type SpeechOperation = Operations['ai.synthesizeSdkSpeech'];
type TranscriptionOperation = Operations['ai.transcribeSdkAudio'];

export function sdkMediaHandlers(
  options: SdkMediaOptions,
): Pick<AiHandlers, 'ai.generateSdkImages' | 'ai.synthesizeSdkSpeech' | 'ai.transcribeSdkAudio'> {
  return {
    'ai.generateSdkImages': (call) => generateImages(options, call),

    'ai.synthesizeSdkSpeech': (call) => withMemberNames(sdkMember, () => synthesize(options, call)),

    'ai.transcribeSdkAudio': (call) => withMemberNames(sdkMember, () => transcribeAudio(options, call)),
  };
}

const members: Readonly<Record<string, string>> = {
  aspect_ratio: 'aspectRatio',
  images: 'files',
  format: 'outputFormat',
  media_type: 'mediaType',
};
const sdkMember: RenameMember = (member) => (Object.hasOwn(members, member) ? members[member] : undefined);

const optionsPath = 'provider_options.';

async function generateImages(
  options: SdkMediaOptions,
  call: Call<ImagesOperation, Identity>,
): Promise<Reply<ImagesOperation>> {
  const { headers, identity, body } = call;
  const model = headers['ai-model-id'];
  const [requestedModel] = options.catalog.chain(viewerOf(identity), model, 'image');
  const provider = requestedModel?.provider ?? '';
  const { optionsForProvider, warnings } = optionsFor(provider, body.providerOptions);
  const rename: RenameMember = (member) =>
    member.startsWith(optionsPath)
      ? `providerOptions.${provider}.${member.slice(optionsPath.length)}`
      : sdkMember(member);
  const { job, headers: replyHeaders } = await withMemberNames(rename, () =>
    runImageJob(options, call, toImageRequest(body, { model, options: optionsForProvider })),
  );
  const images: string[] = [];
  for (const { mediaId } of job.media)
    images.push((await readMedia(options, mediaId, job.readAt)).toString('base64'));
  return { status: 200, body: { images, warnings }, headers: replyHeaders };
}

async function synthesize(
  options: SdkMediaOptions,
  call: Call<SpeechOperation, Identity>,
): Promise<Reply<SpeechOperation>> {
  const { warnings } = optionsFor(undefined, call.body.providerOptions);
  const rendered = await renderWholeSpeech(options, call, {
    body: toSpeechRequest(call.body, call.headers['ai-model-id']),
    render: (audio) => ({ audio: audio.toString('base64'), warnings }),
  });
  return { status: 200, ...rendered };
}

async function transcribeAudio(
  options: SdkMediaOptions,
  call: Call<TranscriptionOperation, Identity>,
): Promise<Reply<TranscriptionOperation>> {
  const { audio, mediaType, providerOptions } = call.body;
  const { warnings } = optionsFor(undefined, providerOptions);
  const { transcription, headers, bill } = await transcribe(options, call, {
    model: call.headers['ai-model-id'],
    audio,
    media_type: mediaType,
  });
  const rendered = await settleAndRender(call, bill, (credits) => ({
    body: toSdkTranscription(transcription, warnings),
    headers: { ...headers, ...creditsHeader(credits) },
  }));
  return { status: 200, ...rendered };
}
