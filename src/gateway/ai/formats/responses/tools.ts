// Converts tools of the responses format to tools of the hub. A custom tool takes plain text; other
// providers support only tools with a JSON Schema, so its text becomes the one member of an object.
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { isRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import {
  invalidMember,
  readList,
  readObject,
  readString,
  readToolName,
  unsupportedMember,
} from '../chat-completions/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';

type HubTool = NonNullable<ModelCall['tools']>[number];

const customInput = 'input';
const customSchema = {
  type: 'object' as const,
  properties: { [customInput]: { type: 'string' as const } },
  required: [customInput],
  additionalProperties: false,
};

export function toTools(tools: ResponseRequest['tools'], hints: DroppedHints): HubTool[] | undefined {
  return tools?.map((tool, index) => {
    const path = `tools[${index}]`;
    const members = readObject(tool, path);
    const type = readString(members['type'], `${path}.type`);
    if (type === 'function') return toFunctionTool(members, path, hints);
    if (type === 'custom') return toCustomTool(members, path);
    throw unsupportedMember(
      `${path}.type`,
      `This model supports only tools of the types function and custom, not ${type.slice(0, 64)}.`,
    );
  });
}

const functionMembers = new Set(['type', 'name', 'description', 'parameters', 'strict']);

function toFunctionTool(tool: Record<string, unknown>, path: string, hints: DroppedHints): HubTool {
  const { name, description, parameters = null, strict } = tool;
  for (const member of Object.keys(tool))
    if (!functionMembers.has(member)) hints.add(member, 'is not sent to this model with a tool');
  return {
    type: 'function',
    name: readToolName(name, `${path}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    ...(typeof strict === 'boolean' ? { strict } : {}),
    inputSchema:
      parameters === null ? { type: 'object', properties: {} } : readObject(parameters, `${path}.parameters`),
  };
}

function toCustomTool({ name, description, format }: Record<string, unknown>, path: string): HubTool {
  const type = isRecord(format) ? format['type'] : undefined;
  if (type !== undefined && type !== 'text')
    throw unsupportedMember(
      `${path}.format`,
      'This model cannot be held to a grammar; leave format out and describe the input.',
    );
  return {
    type: 'function',
    name: readToolName(name, `${path}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    inputSchema: customSchema,
  };
}

/** The names of the custom tools of the request. */
export function customToolNames({ tools }: Pick<ResponseRequest, 'tools'>): ReadonlySet<string> {
  const names = (tools ?? []).flatMap((tool) => (tool?.type === 'custom' ? [tool.name] : []));
  return new Set(names.filter((name) => typeof name === 'string'));
}

/** The hub's input for a call of a custom tool. */
export function toCustomInput(text: string): Record<string, string> {
  return { [customInput]: text };
}

/** The text of a custom tool from the JSON that the model wrote; the JSON itself when it has another form. */
export function readCustomInput(json: string): string {
  const value = parseJsonOrUndefined(json);
  const text = isRecord(value) ? value[customInput] : value;
  return typeof text === 'string' ? text : json;
}

/** The choice of a tool, and the names that it is limited to. */
export function toToolChoice(choice: unknown): {
  toolChoice: ModelCall['toolChoice'];
  allowedTools?: ReadonlySet<string>;
} {
  if (choice === undefined) return { toolChoice: undefined };
  if (choice === 'auto' || choice === 'none' || choice === 'required')
    return { toolChoice: { type: choice } };
  if (typeof choice === 'string')
    throw invalidMember('tool_choice', 'must be auto, none, required or an object');
  const members = readObject(choice, 'tool_choice');
  const type = readString(members['type'], 'tool_choice.type');
  if (type === 'function' || type === 'custom')
    return { toolChoice: { type: 'tool', toolName: readToolName(members['name'], 'tool_choice.name') } };
  if (type !== 'allowed_tools')
    throw unsupportedMember(
      'tool_choice.type',
      'This model can be given the choice of a tool by its name only.',
    );
  const mode = members['mode'] ?? 'auto';
  if (mode !== 'auto' && mode !== 'required')
    throw invalidMember('tool_choice.mode', 'must be auto or required');
  const names = readList(members['tools'], 'tool_choice.tools').map((tool, index) => {
    const path = `tool_choice.tools[${index}]`;
    return readToolName(readObject(tool, path)['name'], `${path}.name`);
  });
  return { toolChoice: { type: mode }, allowedTools: new Set(names) };
}
