// The script of a `local/echo` answer: directives are lines of the last user message
// that begin with `@`, and the other lines are the text to repeat.
import type { Problem } from '../../../../kernel/problem.ts';
import type { ModelCall, Prompt } from '../../hub/language-model.ts';
import { createBudget, minimalInstance } from './minimal-instance.ts';
import { textOf } from './tokens.ts';
import { unsupportedMember } from '../../hub/problems.ts';

export interface Script {
  text: string;
  reasoning: string[];
  toolCalls: { toolName: string; input: string }[];
  /** Whether the answer ends as if it had reached the output limit. */
  isCutShort: boolean;
  /** Delay before each piece. */
  delayMs: number;
  /**
   * The time of the scripted failure: before the stream starts, or after this many
   * pieces. Undefined for success.
   */
  failure: { after: 'start' | number } | undefined;
}

const maxDirectives = 1_000;
const maxDelayMs = 60_000;

/** Throws a 422 for more than 1,000 directives or a tool schema whose smallest value is too large. */
export function parseScript(call: ModelCall): Script {
  const script: Script = {
    text: '',
    reasoning: [],
    toolCalls: [],
    isCutShort: false,
    delayMs: 0,
    failure: undefined,
  };
  // After a tool result, the directives of the user message and the tool choice have been executed already.
  // Executing them again would call the tool without end.
  if (call.prompt.at(-1)?.role === 'tool') return script;
  const lines: string[] = [];
  let directives = 0;
  for (const line of lastUserText(call.prompt).split('\n')) {
    const directive = parseDirective(line.trimEnd());
    if (directive === undefined) {
      lines.push(line);
      continue;
    }
    directives += 1;
    if (directives > maxDirectives) throw tooManyDirectives(call);
    applyDirective(script, directive);
  }
  script.text = lines.join('\n').trim();
  applyToolChoice(script, call);
  return script;
}

function lastUserText(prompt: Prompt): string {
  const message = prompt.findLast((candidate) => candidate.role === 'user');
  return message === undefined ? '' : textOf(message);
}

const directiveNames = ['reasoning', 'tool', 'length', 'delay', 'fail', 'fail-after'] as const;

interface Directive {
  name: (typeof directiveNames)[number];
  argument: string;
}

function parseDirective(line: string): Directive | undefined {
  if (!line.startsWith('@')) return undefined;
  const [word, argument] = splitAt(line.slice(1), /[ \t]/);
  const name = directiveNames.find((candidate) => candidate === word);
  return name && { name, argument };
}

/** The text before the first match, and the rest without surrounding white space. */
function splitAt(text: string, separator: RegExp): [string, string] {
  const end = text.search(separator);
  return end === -1 ? [text, ''] : [text.slice(0, end), text.slice(end).trim()];
}

function applyDirective(script: Script, { name, argument }: Directive): void {
  switch (name) {
    case 'reasoning':
      script.reasoning.push(argument);
      break;
    case 'tool': {
      const [toolName, input] = splitAt(argument, /\s/);
      script.toolCalls.push({ toolName, input: input === '' ? '{}' : input });
      break;
    }
    case 'length':
      script.isCutShort = true;
      break;
    case 'delay':
      script.delayMs = Math.min(wholeNumber(argument), maxDelayMs);
      break;
    case 'fail':
      script.failure = { after: 'start' };
      break;
    case 'fail-after':
      script.failure = { after: wholeNumber(argument) };
      break;
  }
}

function wholeNumber(text: string): number {
  return /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

function applyToolChoice(script: Script, call: ModelCall): void {
  if (call.toolChoice?.type === 'none') {
    script.toolCalls = [];
    return;
  }
  const toolCall = requiredToolCall(call);
  if (toolCall !== undefined && script.toolCalls.length === 0) script.toolCalls.push(toolCall);
}

/** The tool call that the call requires, with the smallest input that the tool's schema allows. */
function requiredToolCall({
  tools = [],
  toolChoice,
  memberNames,
}: ModelCall): Script['toolCalls'][number] | undefined {
  if (toolChoice?.type !== 'required' && toolChoice?.type !== 'tool') return undefined;
  const index = tools.findIndex(
    (candidate) => toolChoice.type === 'required' || candidate.name === toolChoice.toolName,
  );
  const tool = tools[index];
  if (tool === undefined) return undefined;
  const param = `tools[${index}].${memberNames?.toolSchema ?? 'inputSchema'}`;
  const input = tool.type === 'function' ? minimalInstance(tool.inputSchema, createBudget(param)) : {};
  return { toolName: tool.name, input: JSON.stringify(input) };
}

function tooManyDirectives({ memberNames }: ModelCall): Problem {
  return unsupportedMember(
    memberNames?.prompt ?? 'prompt',
    `The model local/echo accepts at most ${maxDirectives} directives.`,
  );
}
