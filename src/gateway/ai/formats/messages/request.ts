// Converts a request of Anthropic's messages format to a call of the hub, for models whose provider
// does not support the format. A member that the hub cannot express is rejected; a hint is dropped with a
// warning.
import type { MessageRequest } from '../../../../contract/gateway/types.gen.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import { providerOptionsFor } from '../../providers/provider-options.ts';
import {
  invalidMember,
  readList,
  readNumber,
  readObject,
  readString,
  readToolName,
} from '../translation/members.ts';
import { cacheMark } from '../translation/cache-mark.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { showsThinking } from './effort.ts';
import { toPrompt } from './prompt.ts';
import { unsupportedMember } from '../../hub/problems.ts';
import type { TranslateOptions } from '../translation/prompt-parts.ts';

/** Throws a 400 for a missing or invalid member and a 422 for one that the model does not support. */
export function toModelCall(body: MessageRequest, options: TranslateOptions): ModelCall {
  const { model, effort, hints, signal } = options;
  refuseUnsupported(body, hints);
  const responseFormat = toResponseFormat(body);
  const choice = readToolChoice(body);
  return {
    prompt: toPrompt(body, { model, hints }),
    maxOutputTokens: body.max_tokens ?? undefined,
    temperature: readNumber(body['temperature'], 'temperature'),
    topP: readNumber(body['top_p'], 'top_p'),
    topK: readNumber(body['top_k'], 'top_k'),
    stopSequences: readStopSequences(body['stop_sequences']),
    responseFormat,
    tools: body.tools?.map((tool, index) => toTool(tool, { path: `tools[${index}]`, model, hints })),
    toolChoice: toToolChoice(choice),
    reasoningEffort: effort,
    providerOptions: providerOptionsFor(
      model.providerEntry,
      {
        parallelToolCalls: choice?.['disable_parallel_tool_use'] === true ? false : undefined,
        // Schemas of this format are always strict.
        strictSchema: responseFormat === undefined ? undefined : true,
        showsReasoning: showsThinking(body) ? true : undefined,
      },
      'tool_choice.disable_parallel_tool_use',
    ),
    signal,
    memberNames: {
      prompt: 'messages',
      responseSchema: 'output_config.format.schema',
      toolSchema: 'input_schema',
    },
  };
}

/**
 * Members that reach a model of the hub. Of `service_tier` only the values that change nothing are accepted.
 */
export const supportedMembers: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'max_tokens',
  'system',
  'stream',
  'temperature',
  'top_p',
  'top_k',
  'stop_sequences',
  'tools',
  'tool_choice',
  'thinking',
  'output_config',
  'output_format',
  'service_tier',
]);

/** Members that do not affect the answer, each with the text of its warning. */
export const hintMembers: Readonly<Record<string, string>> = {
  metadata: 'labels are not sent to this model',
  cache_control: 'this model caches by rules of its own',
  context_management: 'the conversation is sent to this model as it is',
  diagnostics: 'is not sent to this model',
};

function refuseUnsupported(body: MessageRequest, hints: DroppedHints): void {
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    if (value === undefined || value === null || supportedMembers.has(name)) continue;
    const reason = Object.hasOwn(hintMembers, name) ? hintMembers[name] : undefined;
    if (reason === undefined)
      throw unsupportedMember(name, `The member ${name} is not supported by this model.`);
    hints.add(name, reason);
  }
  const tier = body['service_tier'] ?? 'auto';
  if (tier !== 'auto' && tier !== 'standard_only')
    throw unsupportedMember('service_tier', 'This model has no such tier; use auto or standard_only.');
  for (const [name, value] of Object.entries(body.output_config ?? {}))
    if (name !== 'effort' && name !== 'format' && value !== null)
      throw unsupportedMember(
        `output_config.${name}`,
        `The member output_config.${name} is not supported by this model.`,
      );
}

/** The requested format of the answer. Throws a 400 or 422 for a format that the hub does not have. */
export function toResponseFormat(body: MessageRequest): ModelCall['responseFormat'] {
  // `output_format` is the older name.
  const usesOlderName = (body.output_config?.['format'] ?? null) === null;
  const path = usesOlderName ? 'output_format' : 'output_config.format';
  const value = (usesOlderName ? body['output_format'] : body.output_config?.['format']) ?? undefined;
  if (value === undefined) return undefined;
  const format = readObject(value, path);
  const type = readString(format['type'], `${path}.type`);
  if (type !== 'json_schema')
    throw unsupportedMember(`${path}.type`, 'This model supports only the format json_schema.');
  return { type: 'json', schema: readObject(format['schema'], `${path}.schema`) };
}

function readStopSequences(value: unknown): string[] | undefined {
  if (value === undefined || value === null) return undefined;
  return readList(value, 'stop_sequences').map((stop, index) => readString(stop, `stop_sequences[${index}]`));
}

// Members of a tool that the hub reads. All others change only how the tool's input is sent.
const toolMembers = new Set(['type', 'name', 'description', 'input_schema', 'strict', 'cache_control']);

function toTool(
  tool: NonNullable<MessageRequest['tools']>[number],
  context: { path: string; model: CatalogModel; hints: DroppedHints },
): NonNullable<ModelCall['tools']>[number] {
  const { path, hints } = context;
  const members = readObject(tool, path);
  const { type, name, description, input_schema: schema, strict } = members;
  if (type !== undefined && type !== null && type !== 'custom')
    throw unsupportedMember(
      `${path}.type`,
      `This model supports only tools with an input_schema, not ${readString(type, `${path}.type`)}.`,
    );
  for (const member of Object.keys(members))
    if (!toolMembers.has(member)) hints.add(member, 'is not sent to this model with a tool');
  return {
    type: 'function',
    name: readToolName(name, `${path}.name`),
    ...(typeof description === 'string' ? { description } : {}),
    ...(typeof strict === 'boolean' ? { strict } : {}),
    ...cacheMark(members, context),
    inputSchema:
      schema === undefined ? { type: 'object', properties: {} } : readObject(schema, `${path}.input_schema`),
  };
}

function readToolChoice(body: MessageRequest): Record<string, unknown> | undefined {
  const choice = body['tool_choice'] ?? undefined;
  return choice === undefined ? undefined : readObject(choice, 'tool_choice');
}

function toToolChoice(choice: Record<string, unknown> | undefined): ModelCall['toolChoice'] {
  if (choice === undefined) return undefined;
  switch (choice['type']) {
    case 'auto':
    case 'none':
      return { type: choice['type'] };
    case 'any':
      return { type: 'required' };
    case 'tool':
      return { type: 'tool', toolName: readToolName(choice['name'], 'tool_choice.name') };
    default:
      throw invalidMember('tool_choice.type', 'must be auto, any, tool or none');
  }
}
