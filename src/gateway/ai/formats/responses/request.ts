// Converts a request of OpenAI's responses format to a call of the hub, for models whose provider
// does not support the format. A member that the hub cannot express is rejected; a hint is dropped with a
// warning.
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import type { ModelCall } from '../../hub/language-model.ts';
import { providerOptionsFor } from '../../providers/provider-options.ts';
import { invalidMember, readNumber, readObject, readString } from '../translation/members.ts';
import { toPrompt } from './prompt.ts';
import { refuseUnsupported } from './supported-members.ts';
import { createToolTable } from './tool-table.ts';
import { toToolChoice, toTools } from './tools.ts';
import { unsupportedMember } from '../../hub/problems.ts';
import type { TranslateOptions } from '../translation/prompt-parts.ts';

/** Throws a 400 for a missing or invalid member and a 422 for one that the model does not support. */
export function toModelCall(body: ResponseRequest, options: TranslateOptions): ModelCall {
  const { model, effort, hints, signal } = options;
  refuseUnsupported(body, hints);
  const format = toResponseFormat(body);
  const table = createToolTable(body);
  const { toolChoice, allowedTools } = toToolChoice(body['tool_choice'] ?? undefined, table);
  const tools = toTools(body.tools ?? undefined, { hints, table });
  const isParallel = body['parallel_tool_calls'] ?? undefined;
  if (isParallel !== undefined && typeof isParallel !== 'boolean')
    throw invalidMember('parallel_tool_calls', 'must be true or false');
  return {
    prompt: toPrompt(body, { model, hints, table }),
    maxOutputTokens: body.max_output_tokens ?? undefined,
    temperature: readNumber(body['temperature'], 'temperature'),
    topP: readNumber(body['top_p'], 'top_p'),
    presencePenalty: readNumber(body['presence_penalty'], 'presence_penalty'),
    frequencyPenalty: readNumber(body['frequency_penalty'], 'frequency_penalty'),
    responseFormat: format?.responseFormat,
    tools: allowedTools === undefined ? tools : tools?.filter(({ name }) => allowedTools.has(name)),
    toolChoice,
    reasoningEffort: effort,
    providerOptions: providerOptionsFor(model.providerEntry, {
      parallelToolCalls: isParallel,
      strictSchema: format?.isStrict,
      showsReasoning: showsReasoning(body) ? true : undefined,
    }),
    signal,
    memberNames: { prompt: 'input', responseSchema: 'text.format', toolSchema: 'parameters' },
  };
}

/** Whether the caller requested the reasoning, for display or for the next turn. */
function showsReasoning({ reasoning, include }: ResponseRequest): boolean {
  const { summary } = asRecord(reasoning);
  return (
    (typeof summary === 'string' && summary !== 'none') ||
    (Array.isArray(include) && include.includes('reasoning.encrypted_content'))
  );
}

// In this format a schema without `strict` is only a hint to the model.
function toResponseFormat(
  body: ResponseRequest,
): { responseFormat: ModelCall['responseFormat']; isStrict?: boolean } | undefined {
  const text = body['text'] ?? undefined;
  const value = text === undefined ? undefined : (readObject(text, 'text')['format'] ?? undefined);
  if (value === undefined) return undefined;
  const { type, schema, name, description, strict } = readObject(value, 'text.format');
  switch (readString(type, 'text.format.type')) {
    case 'text':
      return { responseFormat: { type: 'text' } };
    case 'json_object':
      return { responseFormat: { type: 'json' } };
    case 'json_schema':
      return {
        responseFormat: {
          type: 'json',
          schema: readObject(schema, 'text.format.schema'),
          ...(typeof name === 'string' ? { name } : {}),
          ...(typeof description === 'string' ? { description } : {}),
        },
        isStrict: strict === true,
      };
    default:
      throw unsupportedMember(
        'text.format.type',
        'This model supports only the formats text, json_object and json_schema.',
      );
  }
}
