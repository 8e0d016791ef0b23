// The prompt of the AI SDK's language-model format, to which requests in other formats are converted.
import type { StreamRequest } from '../../../../contract/gateway/types.gen.ts';

export type SpecMessage = StreamRequest['prompt'][number];
export type SpecUserPart = Exclude<Extract<SpecMessage, { role: 'user' }>['content'], string>[number];
export type SpecAssistantPart = Exclude<
  Extract<SpecMessage, { role: 'assistant' }>['content'],
  string
>[number];
export type SpecToolPart = Extract<SpecMessage, { role: 'tool' }>['content'][number];
/** A part of a message of any role. */
export type SpecContent = Exclude<SpecMessage['content'], string>[number];
