// Finds members of a chat-completions request that models of the hub do not receive
// and that do not affect the answer: labels, hints and marks. The caller gets a
// warning for each, so that no member is dropped silently.
import type { ChatCompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { Warning } from '../../hub/language-model.ts';
import { adapterOf } from '../../providers/adapters.ts';

/** Members that label a call and do not change its answer. */
export const labelMembers = new Set([
  'user',
  'metadata',
  'store',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
]);

// The members of each nested object that request.ts and prompt.ts read, or that
// callers copy from earlier answers.
const expectedMembers = {
  stream_options: new Set(['include_usage']),
  message: new Set([
    'role',
    'content',
    'refusal',
    'name',
    'tool_calls',
    'tool_call_id',
    'reasoning_content',
    'reasoning_details',
    'audio',
    'function_call',
    'annotations',
  ]),
  part: new Set(['type', 'text', 'refusal', 'image_url', 'input_audio', 'file']),
  image_url: new Set(['url']),
  tool: new Set(['type', 'function']),
  function: new Set(['name', 'description', 'parameters', 'strict']),
};

type NestedObject = keyof typeof expectedMembers;
type AddWarning = (name: string, feature: string, details: string) => void;

// The paths at which models with cache marks accept a mark.
const markPaths = /^(?:messages\[\d+\]\.content\[\d+\]|tools\[\d+\])\.cache_control$/;

/** One warning for each name of a dropped member, with the path of its first occurrence. */
export function droppedMemberWarnings(
  body: ChatCompletionRequest,
  model: Pick<CatalogModel, 'providerEntry'>,
): Warning[] {
  const warnings = new Map<string, Warning>();
  const supportsMarks = adapterOf(model).cacheMark !== undefined;
  const add: AddWarning = (name, feature, details) => {
    if (supportsMarks && name === 'cache_control' && markPaths.test(feature)) return;
    if (!warnings.has(name)) warnings.set(name, { type: 'unsupported', feature, details });
  };
  for (const [name, value] of Object.entries(body))
    if (labelMembers.has(name) && value !== null) add(name, name, 'labels are not sent to this model');
  addUnknown(add, 'stream_options', { value: body.stream_options, path: 'stream_options' });
  for (const [index, message] of body.messages.entries())
    addMessageWarnings(add, message, `messages[${index}]`);
  for (const [index, tool] of (body.tools ?? []).entries()) {
    const path = `tools[${index}]`;
    addUnknown(add, 'tool', { value: tool, path });
    addUnknown(add, 'function', { value: tool['function'], path: `${path}.function` });
  }
  return [...warnings.values()];
}

function addMessageWarnings(
  add: AddWarning,
  message: ChatCompletionRequest['messages'][number],
  path: string,
): void {
  const { name, role, content } = message as { name?: unknown; role: string; content?: unknown };
  if (typeof name === 'string' && role !== 'tool')
    add('name', `${path}.name`, 'names of speakers are not sent to this model');
  addUnknown(add, 'message', { value: message, path });
  for (const [position, part] of listOf(content).entries()) {
    const partPath = `${path}.content[${position}]`;
    addUnknown(add, 'part', { value: part, path: partPath });
    const image = (part as { image_url?: unknown } | null)?.image_url;
    addUnknown(add, 'image_url', { value: image, path: `${partPath}.image_url` });
  }
}

function addUnknown(
  add: AddWarning,
  kind: NestedObject,
  { value, path }: { value: unknown; path: string },
): void {
  for (const [name, member] of Object.entries(asRecord(value))) {
    // Every model treats images as `detail: auto`, so it is not dropped.
    if (expectedMembers[kind].has(name) || member === null || (name === 'detail' && member === 'auto'))
      continue;
    add(name, `${path}.${name}`, 'is not sent to this model');
  }
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
