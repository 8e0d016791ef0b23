// What of a chat-completions request no model behind the hub is told, although its answer is none the worse for it:
// labels, hints and marks. It is said back to the caller, so that nothing of a request is lost without a word.
import type { ChatCompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import type { Warning } from '../../hub/language-model.ts';

/** Members that only label a call and say nothing about its answer. */
export const labelMembers = new Set([
  'user',
  'metadata',
  'store',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
]);

// What is read of each object below the top, here and in chat-format.ts; what answers bring along comes back with them.
const read = {
  stream_options: new Set(['include_usage']),
  message: new Set([
    'role',
    'content',
    'refusal',
    'name',
    'tool_calls',
    'tool_call_id',
    'reasoning_content',
    'audio',
    'function_call',
    'annotations',
  ]),
  part: new Set(['type', 'text', 'refusal', 'image_url', 'input_audio', 'file']),
  image_url: new Set(['url']),
  tool: new Set(['type', 'function']),
  function: new Set(['name', 'description', 'parameters', 'strict']),
};

/** One warning for each kind of member, at the first place where it stands. */
export function droppedMemberWarnings(body: ChatCompletionRequest): Warning[] {
  const found = new Map<string, Warning>();
  const note = (name: string, feature: string, details: string) => {
    if (!found.has(name)) found.set(name, { type: 'unsupported', feature, details });
  };
  const look = (value: unknown, kind: keyof typeof read, path: string) => {
    for (const [name, said] of membersOf(value)) {
      // Whatever detail is right is what every model sees by itself.
      if (read[kind].has(name) || said === null || (name === 'detail' && said === 'auto')) continue;
      note(name, `${path}.${name}`, 'is not told to this model');
    }
  };
  for (const [name, value] of membersOf(body))
    if (labelMembers.has(name) && value !== null) note(name, name, 'labels are not told to this model');
  look(body.stream_options, 'stream_options', 'stream_options');
  for (const [index, message] of body.messages.entries()) {
    const path = `messages[${index}]`;
    const { name, role, content } = message as { name?: unknown; role: string; content?: unknown };
    if (typeof name === 'string' && role !== 'tool')
      note('name', `${path}.name`, 'names of speakers are not told to this model');
    look(message, 'message', path);
    for (const [position, part] of listOf(content).entries()) {
      look(part, 'part', `${path}.content[${position}]`);
      look(
        (part as { image_url?: unknown } | null)?.image_url,
        'image_url',
        `${path}.content[${position}].image_url`,
      );
    }
  }
  for (const [index, tool] of listOf((body as { tools?: unknown }).tools).entries()) {
    look(tool, 'tool', `tools[${index}]`);
    look((tool as { function?: unknown } | null)?.function, 'function', `tools[${index}].function`);
  }
  return [...found.values()];
}

function membersOf(value: unknown): [string, unknown][] {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
