// A conversation as plain text, for the model that summarizes it. Tool calls and files become text, since
// some models refuse them in such a request, and long outputs are clipped.
import type { UiMessage, UiMessagePart } from '../../../../contract/agent/types.gen.ts';
import { asText } from '../../event-log/events.ts';
import { canonicalJson } from './canonical.ts';
import { clipText } from './clip.ts';
import { errorOf } from './answer.ts';

// A summary needs the result of a call, not its whole output.
const maxOutputTokens = 500;
const maxInputTokens = 300;

/** One entry per text, call or file. */
export function transcriptOf(message: Pick<UiMessage, 'role' | 'parts'>): string[] {
  return message.parts.flatMap((part) => describePart(part, message.role));
}

function describePart(part: UiMessagePart, role: string): string[] {
  switch (part.type) {
    case 'text':
      return part.text === '' ? [] : [`${role === 'user' ? 'Person' : 'You'}: ${asText(part.text)}`];
    case 'file':
      return [`Person: [a file ${asText(part.filename ?? '')} of type ${part.mediaType}]`];
    case 'data-attachment':
      return [`Person: [the attached file ${asText(part.data.fileName)} of type ${part.data.contentType}]`];
    case 'dynamic-tool':
      return [
        `You called ${part.toolName} with ${clipText(asJsonText(part.input), maxInputTokens).text}`,
        part.state === 'output-available'
          ? `It returned: ${clipText(asJsonText(part.output), maxOutputTokens).text}`
          : `It ${part.state === 'output-denied' ? 'was denied' : 'failed'}: ${clipText(errorOf(part), maxOutputTokens).text}`,
      ];
    default:
      return [];
  }
}

function asJsonText(value: unknown): string {
  return typeof value === 'string' ? asText(value) : (JSON.stringify(canonicalJson(value)) ?? '');
}
