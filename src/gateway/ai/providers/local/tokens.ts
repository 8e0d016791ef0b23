// How the local models count: a token is a word with the white space before it. Simple enough to count by hand, the
// same everywhere, and so of use in tests of money.
import type { Prompt, PromptMessage } from '../../model.ts';

/** The text in pieces that make it up again: each a word, with the white space before it; the last also has what follows. */
export function words(text: string): string[] {
  return text.match(/\s*\S+(?:\s+$)?/g) ?? (text === '' ? [] : [text]);
}

export function countTokens(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

/** All words of a prompt, whoever said them. */
export function promptTokens(prompt: Prompt): number {
  return prompt.reduce((sum, message) => sum + countTokens(textOf(message)), 0);
}

/** What a message says in words; files say nothing. */
export function textOf(message: PromptMessage): string {
  if (message.role === 'system') return message.content;
  const texts: string[] = [];
  for (const part of message.content) {
    if (part.type === 'text' || part.type === 'reasoning') texts.push(part.text);
    else if (part.type === 'tool-call') texts.push(`${part.toolName} ${JSON.stringify(part.input)}`);
    else if (part.type === 'tool-result') texts.push(outputText(part.output));
  }
  return texts.join('\n');
}

type ToolOutput = Extract<Exclude<PromptMessage, { role: 'system' }>['content'][number], { type: 'tool-result' }>['output'];

function outputText(output: ToolOutput): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return typeof output.value === 'string' ? output.value : JSON.stringify(output.value);
    case 'execution-denied':
      return output.reason ?? 'The tool was not allowed to run.';
    case 'content':
      return output.value.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  }
}
