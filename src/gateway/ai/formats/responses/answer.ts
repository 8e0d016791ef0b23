// Serializes answers of the hub in the responses format, whole or as the events of a stream.
import type {
  ResponseAnswer,
  ResponseEvent,
  ResponseOutputItem,
  ResponseRequest,
  ResponseTool,
  ResponseUsage,
} from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import {
  validTokenCount,
  type Answer,
  type FinishReason,
  type StreamPart,
  type Usage,
} from '../../hub/language-model.ts';
import { answerBlocks, streamBlocks, type StreamOptions } from '../translation/blocks.ts';
import { approximateJsonBytes } from '../translation/json-size.ts';
import { createItem, replayItem, serializeItem } from './items.ts';
import { createItemEvents, type UnnumberedEvent } from './item-events.ts';
import { createToolTable } from './tool-table.ts';

export interface ResponseOptions {
  modelId: string;
  /** `resp_…`. */
  responseId: string;
  /** The time now, in seconds. */
  nowSeconds: () => number;
  /** The request, whose settings the answer repeats. */
  body: ResponseRequest;
}

/** The types of the events that contain the final response. */
export const finalEventTypes: ReadonlySet<unknown> = new Set([
  'response.completed',
  'response.incomplete',
  'response.failed',
]);

/** The whole answer as one response. Throws for a failed answer. */
export function serializeResponse(answer: Answer, options: ResponseOptions): ResponseAnswer {
  const table = createToolTable(options.body);
  const output = answerBlocks(answer).flatMap((block): ResponseOutputItem[] => {
    const item = createItem(block, table);
    const serializedItem = serializeItem(item, 'completed');
    return block.kind === 'tool' && block.replay !== undefined
      ? [replayItem(item), serializedItem]
      : [serializedItem];
  });
  return toFinalResponse(createResponseObject(options), {
    ...answer,
    output,
    nowSeconds: options.nowSeconds,
  });
}

export type ResponseStreamOptions = ResponseOptions & StreamOptions;

/**
 * The parts of a stream as events. Throws the errors of the parts, and a Problem when they end without a
 * `finish`. The first event follows the first content, so that an earlier failure still gets an HTTP status.
 */
export async function* serializeResponseEvents(
  parts: AsyncIterable<StreamPart>,
  { onWarnings, ...options }: ResponseStreamOptions,
): AsyncGenerator<ResponseEvent> {
  const response = createResponseObject(options);
  const items = createItemEvents(createToolTable(options.body));
  let eventCount = 0;
  const addSequence = (event: UnnumberedEvent): ResponseEvent => {
    const sequence = eventCount;
    eventCount += 1;
    return { ...event, sequence_number: sequence };
  };
  for await (const event of streamBlocks(parts, onWarnings)) {
    if (eventCount === 0) {
      yield addSequence({ type: 'response.created', response });
      yield addSequence({ type: 'response.in_progress', response });
    }
    if (event.type === 'finish') {
      const { output } = items;
      const finalResponse = toFinalResponse(response, { ...event, output, nowSeconds: options.nowSeconds });
      const type = finalResponse.status === 'incomplete' ? 'response.incomplete' : 'response.completed';
      yield addSequence({ type, response: finalResponse });
    } else for (const itemEvent of items.serialize(event)) yield addSequence(itemEvent);
  }
}

interface FinalAnswer extends Pick<Answer, 'finishReason' | 'usage'> {
  output: ResponseOutputItem[];
  nowSeconds: () => number;
}

function toFinalResponse(response: ResponseAnswer, finalAnswer: FinalAnswer): ResponseAnswer {
  const { finishReason, usage, output, nowSeconds } = finalAnswer;
  const reason = incompleteReason(finishReason);
  return {
    ...response,
    status: reason === undefined ? 'completed' : 'incomplete',
    completed_at: reason === undefined ? nowSeconds() : null,
    incomplete_details: reason === undefined ? null : { reason },
    output,
    usage: serializeUsage(usage),
  };
}

function incompleteReason({ unified }: FinishReason): string | undefined {
  if (unified === 'length') return 'max_output_tokens';
  return unified === 'content-filter' ? 'content_filter' : undefined;
}

function serializeUsage({ inputTokens, outputTokens }: Usage): ResponseUsage {
  const input = validTokenCount(inputTokens.total) ?? 0;
  const output = validTokenCount(outputTokens.total) ?? 0;
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: validTokenCount(inputTokens.cacheRead) ?? 0,
      cache_write_tokens: validTokenCount(inputTokens.cacheWrite) ?? 0,
    },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: validTokenCount(outputTokens.reasoning) ?? 0 },
    total_tokens: input + output,
  };
}

// The first two events and the last one contain the whole response, which repeats members of the request.
// Larger members are left out.
const maxRepeatedBytes = 16 * 1024;

/** The answer before its first item. Clients expect all of these members. */
export function createResponseObject({
  modelId,
  responseId,
  nowSeconds,
  body,
}: ResponseOptions): ResponseAnswer {
  const repeat = <T>(value: unknown, fallback: T): unknown => {
    if (value === undefined || value === null) return fallback;
    return approximateJsonBytes(value, maxRepeatedBytes) > maxRepeatedBytes ? fallback : value;
  };
  const { effort = null, summary = null } = asRecord(body.reasoning);
  return {
    id: responseId,
    object: 'response',
    created_at: nowSeconds(),
    completed_at: null,
    status: 'in_progress',
    background: false,
    error: null,
    incomplete_details: null,
    instructions: repeat(body.instructions, null),
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: null,
    model: modelId,
    output: [],
    parallel_tool_calls: body['parallel_tool_calls'] ?? true,
    presence_penalty: body['presence_penalty'] ?? 0,
    frequency_penalty: body['frequency_penalty'] ?? 0,
    previous_response_id: null,
    prompt_cache_key: null,
    reasoning: { effort, summary },
    safety_identifier: null,
    service_tier: 'default',
    store: false,
    temperature: body['temperature'] ?? 1,
    text: { format: { type: 'text' }, ...asRecord(repeat(body['text'], undefined)) },
    tool_choice: repeat(body['tool_choice'], 'auto'),
    tools: repeat(body.tools?.map(toRepeatedTool), []),
    top_logprobs: 0,
    top_p: body['top_p'] ?? 1,
    truncation: 'disabled',
    usage: null,
    user: null,
    metadata: asRecord(repeat(body['metadata'], {})),
  };
}

/** OpenAI's answers have all members of a function; those that the request lacks are null. */
function toRepeatedTool(tool: ResponseTool): ResponseTool {
  return tool?.type === 'function' ? { description: null, parameters: null, strict: null, ...tool } : tool;
}
