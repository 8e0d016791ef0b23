// The audio of a transcription request, from JSON or from a form.
import type { TranscribeAudioForm, TranscribeAudioRequest } from '../../../contract/gateway/types.gen.ts';
import type { UploadedFile } from '../../../kernel/http/body/multipart.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { InputFile } from '../hub/media-model.ts';
import { decodeBase64 } from './base64.ts';

export type AudioRequest =
  | TranscribeAudioRequest
  | (Omit<TranscribeAudioForm, 'file'> & { file: UploadedFile });

const maxAudioBytes = 25 * 1024 * 1024;

/** Throws a 400 for empty audio or text that is not base64, and a 413 above 25 MiB. */
export function audioInputOf(body: AudioRequest): { audio: InputFile; fileName: string } {
  const isForm = 'file' in body;
  const content = isForm ? body.file.content : decodeBase64(body.audio, 'audio');
  requireSize(content, isForm ? 'file' : 'audio');
  const declaredType = isForm ? body.file.mediaType : body.media_type.toLowerCase();
  const mediaType = /^(?:audio|video)\/[a-z0-9.+-]+$/.test(declaredType)
    ? declaredType
    : 'application/octet-stream';
  // Providers detect the container by the file name's extension. The rest of the
  // caller's file name is not sent.
  const extension = fileExtension(mediaType, isForm ? body.file.fileName : '');
  return { audio: { content, mediaType }, fileName: `audio.${extension}` };
}

function requireSize({ byteLength }: Uint8Array, param: string): void {
  if (byteLength === 0)
    throw new Problem('bad_request', 'invalid_request', `The member ${param} is empty.`, {
      param,
      details: [{ path: param, message: 'is empty' }],
    });
  if (byteLength > maxAudioBytes)
    throw new Problem(
      'too_large',
      'request_too_large',
      `The audio has ${byteLength} bytes; at most ${maxAudioBytes} are accepted.`,
      {
        param,
      },
    );
}

const extensions: Record<string, string> = {
  'audio/mpeg': 'mp3',
  'audio/mp3': 'mp3',
  'audio/wav': 'wav',
  'audio/x-wav': 'wav',
  'audio/wave': 'wav',
  'audio/vnd.wave': 'wav',
  'audio/ogg': 'ogg',
  'audio/opus': 'ogg',
  'audio/flac': 'flac',
  'audio/x-flac': 'flac',
  'audio/mp4': 'm4a',
  'audio/m4a': 'm4a',
  'audio/x-m4a': 'm4a',
  'video/mp4': 'mp4',
  'audio/webm': 'webm',
  'video/webm': 'webm',
  'audio/aac': 'aac',
};

function fileExtension(mediaType: string, fileName: string): string {
  return extensions[mediaType] ?? /\.([A-Za-z0-9]{1,8})$/.exec(fileName)?.[1]?.toLowerCase() ?? 'bin';
}
