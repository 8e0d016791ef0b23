// Compaction of a conversation: builds the input with which a model writes a summary, reads the summary from
// the response, and builds the message in which a model reads it later.
import { isRecord, type JsonRecord } from '../../../../kernel/json-value.ts';

// Codex sends the second name.
const compactionTypes = new Set<unknown>(['compaction', 'compaction_summary']);

export function isCompaction(item: unknown): item is JsonRecord {
  return isRecord(item) && compactionTypes.has(item['type']);
}

const instruction = `Summarize the conversation above for an assistant that continues it and cannot read it. \
Name the user's goals and constraints, the decisions and their reasons, what is done, what is open, and the exact \
names, paths, ids and values that are needed. Write only the summary.`;

/** The conversation as messages of text and files, followed by the request for a summary. */
export function toSummaryInput(items: readonly unknown[]): JsonRecord[] {
  return [...items.filter(isRecord).flatMap(toMessage), message('user', instruction)];
}

// Tool calls become text and reasoning is left out: a provider refuses calls of tools that the request does
// not define, and reasoning of another model.
function toMessage(item: JsonRecord): JsonRecord[] {
  const { type = 'message', role, content, name, output } = item;
  switch (type) {
    case 'message':
      return [{ type, role, content }];
    case 'reasoning':
      return [];
    case 'function_call':
    case 'custom_tool_call':
      return [
        message('assistant', `[call of ${textOf(name)}]\n${textOf(item['arguments'] ?? item['input'])}`),
      ];
    case 'function_call_output':
    case 'custom_tool_call_output':
      return [toResultMessage(output)];
    case 'item_reference':
      return [item];
    default:
      return [message('assistant', JSON.stringify(item))];
  }
}

function toResultMessage(output: unknown): JsonRecord {
  if (!Array.isArray(output)) return message('user', `[result]\n${textOf(output)}`);
  const content = [{ type: 'input_text', text: '[result]' }, ...(output as unknown[])];
  return { type: 'message', role: 'user', content };
}

function message(role: 'user' | 'assistant', content: string): JsonRecord {
  return { type: 'message', role, content };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null);
}

/** The user's messages, which a compaction keeps. */
export function selectUserMessages(items: readonly unknown[]): JsonRecord[] {
  return items.filter(isRecord).filter(({ type = 'message', role }) => type === 'message' && role === 'user');
}

/** The message in which a model reads a summary. */
export function toSummaryMessage(summary: string): JsonRecord {
  return message('user', `Summary of the conversation so far:\n${summary}`);
}

/** The text of a completed response; undefined if the response is incomplete, failed or without text. */
export function readCompleteText({ status = 'completed', output }: JsonRecord): string | undefined {
  if (status !== 'completed' || !Array.isArray(output)) return undefined;
  const text = output
    .filter(isRecord)
    .filter(({ type }) => type === 'message')
    .flatMap(({ content }) => (Array.isArray(content) ? content.filter(isRecord) : []))
    .map((part) => (typeof part['text'] === 'string' ? part['text'] : ''))
    .join('')
    .trim();
  return text === '' ? undefined : text;
}
