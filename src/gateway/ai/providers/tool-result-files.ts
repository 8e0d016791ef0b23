// Results of tools for formats in which such a result is text alone, as in chat completions: the texts of one are
// joined, and its pictures and files follow in a message of the user, where the format has a place for them.
import type { Prompt } from '../hub/language-model.ts';

type UserContent = Extract<Prompt[number], { role: 'user' }>['content'];
type ToolPart = Extract<Prompt[number], { role: 'tool' }>['content'][number];

/** The same conversation. The message with the files stands behind all results of its turn, which must not be parted. */
export function separateToolFiles(prompt: Prompt): Prompt {
  const made: Prompt = [];
  let files: UserContent = [];
  const handOver = () => {
    if (files.length > 0) made.push({ role: 'user', content: files });
    files = [];
  };
  for (const message of prompt) {
    if (message.role === 'tool') {
      made.push({ ...message, content: message.content.map((part) => textAlone(part, files)) });
      continue;
    }
    handOver();
    made.push(message);
  }
  handOver();
  return made;
}

// What is no text goes to the files.
function textAlone(part: ToolPart, files: UserContent): ToolPart {
  if (part.type !== 'tool-result' || part.output.type !== 'content') return part;
  const { value, ...output } = part.output;
  // What a provider has of its own is for its package to write down.
  if (value.some(({ type }) => type === 'custom')) return part;
  const texts: string[] = [];
  let named = false;
  for (const piece of value) {
    if (piece.type === 'text') texts.push(piece.text);
    if (piece.type !== 'file') continue;
    if (!named)
      files.push({
        type: 'text',
        text: `What the tool ${part.toolName} gave beside its text (${part.toolCallId}):`,
      });
    named = true;
    const { data, mediaType, filename } = piece;
    files.push({ type: 'file', data, mediaType, ...(filename === undefined ? {} : { filename }) });
  }
  if (named && texts.length === 0) texts.push('It follows in a message of its own.');
  return { ...part, output: { ...output, type: 'text', value: texts.join('\n') } };
}
