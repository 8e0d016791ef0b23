// Tokens of the local models: a token is a word with the white space before it, which is easy to count by
// hand in tests of charges. The regular expressions here run in linear time, since each can match a string in
// only one way.
import type { Prompt, PromptMessage, ToolOutput } from '../../hub/language-model.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/**
 * Splits the text into words, each with the white space before it. The last piece also has the white space at
 * the end of the text.
 */
export function splitWords(text: string): string[] {
  const pieces: string[] = [];
  let space = '';
  for (const run of text.match(/\s+|\S+/g) ?? []) {
    if (run.trim() === '') space = run;
    else {
      pieces.push(space + run);
      space = '';
    }
  }
  if (space !== '') pieces.push((pieces.pop() ?? '') + space);
  return pieces;
}

export function countTokens(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

/** The tokens of all messages. */
export function promptTokens(prompt: Prompt): number {
  return prompt.reduce((sum, message) => sum + countTokens(textOf(message)), 0);
}

/** The text of a message, without its files. */
export function textOf(message: PromptMessage): string {
  if (message.role === 'system') return message.content;
  const texts: string[] = [];
  for (const part of message.content) {
    if (part.type === 'text' || part.type === 'reasoning') texts.push(part.text);
    else if (part.type === 'tool-call') texts.push(`${part.toolName} ${jsonText(part.input)}`);
    else if (part.type === 'tool-result') texts.push(outputText(part.output));
  }
  return texts.join('\n');
}

function outputText(output: ToolOutput): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return typeof output.value === 'string' ? output.value : jsonText(output.value);
    case 'execution-denied':
      return output.reason ?? 'The tool was not allowed to run.';
    case 'content':
      return output.value.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  }
}

// Tool arguments in the chat format are JSON in a string, which may nest deeper than
// the limit of the request itself.
function jsonText(input: unknown): string {
  try {
    return JSON.stringify(input);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw unsupportedMember('messages', 'The input or output of a tool is nested too deeply for this model.');
  }
}
