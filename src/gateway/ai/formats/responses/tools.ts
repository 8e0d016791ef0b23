// Converts tools of the responses format to tools of the hub. A custom tool takes plain text; other
// providers support only tools with a JSON Schema, so its text becomes the only member of an object.
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { isRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import { invalidMember, readList, readObject, readString, readToolName } from '../translation/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { maxNamespaceTools, type ToolTable } from './tool-table.ts';
import { unsupportedMember } from '../../hub/problems.ts';

type HubTool = NonNullable<ModelCall['tools']>[number];

const customInput = 'input';
const customSchema = {
  type: 'object' as const,
  properties: { [customInput]: { type: 'string' as const } },
  required: [customInput],
  additionalProperties: false,
};

/** Throws a 400 for a tool of the wrong shape, and a 422 for one that the model does not support. */
export function toTools(
  tools: ResponseRequest['tools'],
  { hints, table }: { hints: DroppedHints; table: ToolTable },
): HubTool[] | undefined {
  let namespaceToolCount = 0;
  return tools?.flatMap((tool, index) => {
    const path = `tools[${index}]`;
    const members = readObject(tool, path);
    if (members['type'] !== 'namespace') return [toTool(members, path, hints)];
    const namespace = readToolName(members['name'], `${path}.name`);
    if ((members['description'] ?? '') !== '')
      hints.add('description', 'of a namespace is not sent to this model');
    const memberTools = readList(members['tools'], `${path}.tools`);
    namespaceToolCount += memberTools.length;
    if (namespaceToolCount > maxNamespaceTools)
      throw unsupportedMember(
        `${path}.tools`,
        `This model accepts at most ${maxNamespaceTools} tools in namespaces; send fewer.`,
      );
    return memberTools.map((member, memberIndex) => {
      const memberPath = `${path}.tools[${memberIndex}]`;
      const hubTool = toTool(readObject(member, memberPath), memberPath, hints);
      return { ...hubTool, name: table.modelName(hubTool.name, namespace) };
    });
  });
}

function toTool(members: Record<string, unknown>, path: string, hints: DroppedHints): HubTool {
  const type = readString(members['type'], `${path}.type`);
  if (type === 'function') return toFunctionTool(members, path, hints);
  if (type === 'custom') return toCustomTool(members, path);
  throw unsupportedMember(
    `${path}.type`,
    `This model supports only tools of the types function and custom, not ${type.slice(0, 64)}.`,
  );
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
      'This model cannot follow a grammar; leave out format and describe the input instead.',
    );
  return {
    type: 'function',
    name: readToolName(name, `${path}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    inputSchema: customSchema,
  };
}

/** The hub's input for a call of a custom tool. */
export function toCustomInput(text: string): Record<string, string> {
  return { [customInput]: text };
}

/** Reads the text for a custom tool from the model's JSON. JSON of another shape is returned as it is. */
export function readCustomInput(json: string): string {
  const value = parseJsonOrUndefined(json);
  const text = isRecord(value) ? value[customInput] : value;
  return typeof text === 'string' ? text : json;
}

/** The tool choice, and the model's names of the tools that it allows; without names it allows all. */
export function toToolChoice(
  choice: unknown,
  table: ToolTable,
): {
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
    return { toolChoice: { type: 'tool', toolName: readChosenTool(members, 'tool_choice', table) } };
  if (type !== 'allowed_tools')
    throw unsupportedMember(
      'tool_choice.type',
      'For this model, tool_choice can only name a function or custom tool, or list allowed_tools.',
    );
  const mode = members['mode'] ?? 'auto';
  if (mode !== 'auto' && mode !== 'required')
    throw invalidMember('tool_choice.mode', 'must be auto or required');
  return { toolChoice: { type: mode }, allowedTools: readAllowedTools(members['tools'], table) };
}

/** The model's names of the allowed tools. A namespace that the request repeats is expanded only once. */
function readAllowedTools(tools: unknown, table: ToolTable): Set<string> {
  const names = new Set<string>();
  const namespaces = new Set<string>();
  for (const [index, tool] of readList(tools, 'tool_choice.tools').entries()) {
    const path = `tool_choice.tools[${index}]`;
    const allowedTool = readObject(tool, path);
    if (allowedTool['type'] === 'namespace')
      namespaces.add(readToolName(allowedTool['name'], `${path}.name`));
    else names.add(readChosenTool(allowedTool, path, table));
  }
  for (const namespace of namespaces) for (const name of table.namesIn(namespace)) names.add(name);
  return names;
}

/** The model's name for a tool that the request names, with or without its namespace. */
export function readChosenTool(members: Record<string, unknown>, path: string, table: ToolTable): string {
  const name = readToolName(members['name'], `${path}.name`);
  const namespace = members['namespace'] ?? undefined;
  return namespace === undefined ? name : table.modelName(name, readToolName(namespace, `${path}.namespace`));
}
