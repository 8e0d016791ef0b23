// Tool results for formats in which they can only be text, such as chat completions: the texts of a result
// are joined, and its images and files follow in a user message, which may contain files.
import type { Prompt, ToolPart, UserPart } from '../hub/language-model.ts';

/**
 * The same conversation. The message with the files follows all tool results of its
 * turn, which must stay adjacent.
 */
export function separateToolFiles(prompt: Prompt): Prompt {
  const messages: Prompt = [];
  let files: UserPart[] = [];
  const appendFiles = () => {
    if (files.length > 0) messages.push({ role: 'user', content: files });
    files = [];
  };
  for (const message of prompt) {
    if (message.role === 'tool') {
      messages.push({ ...message, content: message.content.map((part) => extractText(part, files)) });
      continue;
    }
    appendFiles();
    messages.push(message);
  }
  appendFiles();
  return messages;
}

/** The result reduced to its texts; its files are appended to `files`. */
function extractText(part: ToolPart, files: UserPart[]): ToolPart {
  if (part.type !== 'tool-result' || part.output.type !== 'content') return part;
  const { value: pieces, ...output } = part.output;
  // The package converts results with parts of the provider's own format itself.
  if (pieces.some(({ type }) => type === 'custom')) return part;
  const texts = pieces.flatMap((piece) => (piece.type === 'text' ? [piece.text] : []));
  const resultFiles = pieces.flatMap((piece) => (piece.type === 'file' ? [piece] : []));
  if (resultFiles.length > 0) {
    files.push({
      type: 'text',
      text: `Files that the tool ${part.toolName} returned in addition to its text (${part.toolCallId}):`,
    });
    for (const { data, mediaType, filename } of resultFiles)
      files.push({ type: 'file', data, mediaType, ...(filename === undefined ? {} : { filename }) });
    if (texts.length === 0) texts.push('The result follows in a separate message.');
  }
  return { ...part, output: { ...output, type: 'text', value: texts.join('\n') } };
}
