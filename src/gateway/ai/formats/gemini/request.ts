// Converts a request of Gemini's API to the AI SDK's language-model format. From there on it is handled as
// a request in that format: the same checks, the same size for its reservation, the same call of the hub.
import type {
  GeminiGenerationConfig,
  GeminiRequest,
  GeminiTool,
  GeminiToolConfig,
  StreamRequest,
} from '../../../../contract/gateway/types.gen.ts';
import { toPrompt } from './prompt.ts';
import { toJsonSchema } from './schema.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/** Throws a 400 for inconsistent contents, and a 422 for content that the hub cannot express. */
export function toStreamRequest(model: string, body: GeminiRequest): StreamRequest {
  const { generationConfig: config = {}, tools, toolConfig } = body;
  refuseUnsupported(body, config);
  const functions = toFunctions(tools ?? []);
  const effort = config.thinkingConfig?.thinkingLevel?.toLowerCase();
  const choice = functions.length === 0 ? undefined : toToolChoice(toolConfig, functions);
  return {
    model,
    prompt: toPrompt(body),
    ...toSettings(config),
    ...(functions.length === 0 ? {} : { tools: functions }),
    ...(choice === undefined ? {} : { toolChoice: choice }),
    ...(effort === undefined || effort === 'thinking_level_unspecified' ? {} : { reasoning_effort: effort }),
  };
}

/** Hints in the request that no model here supports. */
export function ignoredHints(request: GeminiRequest): string[] {
  const { safetySettings, labels, generationConfig, tools = [] } = request;
  const functions = tools.flatMap(({ functionDeclarations = [] }) => functionDeclarations);
  const hints: string[] = [];
  if (functions.some(({ response, responseJsonSchema }) => response ?? responseJsonSchema))
    hints.push('tools.functionDeclarations.response');
  if (safetySettings !== undefined) hints.push('safetySettings');
  if (labels !== undefined) hints.push('labels');
  if (generationConfig?.thinkingConfig?.thinkingBudget !== undefined)
    hints.push('generationConfig.thinkingConfig.thinkingBudget');
  return hints;
}

function toSettings(config: GeminiGenerationConfig): Partial<StreamRequest> {
  const { maxOutputTokens, temperature, topP, topK, stopSequences, seed } = config;
  const { presencePenalty, frequencyPenalty } = config;
  const responseFormat = toResponseFormat(config);
  const settings: Partial<StreamRequest> = {
    maxOutputTokens,
    temperature,
    topP,
    topK,
    stopSequences,
    seed,
    presencePenalty,
    frequencyPenalty,
    responseFormat,
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}

function toResponseFormat(config: GeminiGenerationConfig): StreamRequest['responseFormat'] {
  const { responseMimeType: mediaType = 'text/plain', responseSchema, responseJsonSchema } = config;
  const hasSchema = responseSchema !== undefined || responseJsonSchema !== undefined;
  if (mediaType === 'text/plain' && !hasSchema) return undefined;
  if (mediaType !== 'application/json')
    throw unsupportedMember(
      'generationConfig.responseMimeType',
      'An answer is text/plain, or application/json with or without a schema.',
    );
  if (!hasSchema) return { type: 'json' };
  return { type: 'json', schema: responseJsonSchema ?? toJsonSchema(responseSchema ?? {}) };
}

/**
 * The path of the function that is the tool with this index in the converted request; undefined for an index
 * beyond the last function.
 */
export function functionPath({ tools = [] }: GeminiRequest, toolIndex: number): string | undefined {
  return tools.flatMap(({ functionDeclarations = [] }, index) =>
    functionDeclarations.map((_function, position) => `tools[${index}].functionDeclarations[${position}]`),
  )[toolIndex];
}

function toFunctions(tools: readonly GeminiTool[]): NonNullable<StreamRequest['tools']> {
  return tools.flatMap(({ functionDeclarations, ...others }, index) => {
    const [otherMember] = Object.keys(others);
    if (otherMember !== undefined)
      throw unsupportedMember(
        `tools[${index}].${otherMember}`,
        `Only function tools are supported on this path, not ${otherMember}.`,
      );
    return (functionDeclarations ?? []).map(({ name, description, parameters, parametersJsonSchema }) => ({
      type: 'function' as const,
      name,
      ...(description === undefined ? {} : { description }),
      inputSchema:
        parametersJsonSchema ??
        (parameters === undefined ? { type: 'object', properties: {} } : toJsonSchema(parameters)),
    }));
  });
}

function toToolChoice(
  config: GeminiToolConfig | undefined,
  functions: NonNullable<StreamRequest['tools']>,
): StreamRequest['toolChoice'] {
  const { mode = 'AUTO', allowedFunctionNames = [] } = config?.functionCallingConfig ?? {};
  if (mode === 'NONE') return { type: 'none' };
  const [onlyName, ...otherNames] = allowedFunctionNames;
  if (otherNames.length > 0)
    throw unsupportedMember(
      'toolConfig.functionCallingConfig.allowedFunctionNames',
      'Only one allowed function can be named; to allow several, leave the others out of tools.',
    );
  if (onlyName !== undefined && mode === 'VALIDATED') {
    // Unlike ANY, this mode lets the model answer in text, so the function must not be forced.
    if (functions.every(({ name }) => name === onlyName)) return { type: 'auto' };
    throw unsupportedMember(
      'toolConfig.functionCallingConfig.allowedFunctionNames',
      'Functions cannot be selected in the mode VALIDATED; leave the others out of tools.',
    );
  }
  if (onlyName !== undefined) return { type: 'tool', toolName: onlyName };
  return { type: mode === 'ANY' ? 'required' : 'auto' };
}

function refuseUnsupported({ cachedContent }: GeminiRequest, config: GeminiGenerationConfig): void {
  if (cachedContent !== undefined)
    throw unsupportedMember('cachedContent', 'Content that is cached at a provider is not supported.');
  if ((config.candidateCount ?? 1) > 1)
    throw unsupportedMember(
      'generationConfig.candidateCount',
      'A call returns one candidate; leave out candidateCount.',
    );
  if (config.responseModalities?.some((modality) => modality !== 'TEXT') === true)
    throw unsupportedMember(
      'generationConfig.responseModalities',
      'Models on this path answer only in TEXT.',
    );
}
