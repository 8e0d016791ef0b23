// Converts the tool calls in the messages of a chat: each call, and its output once the browser has added it.
import type { UiChatOtherPart, UiChatPart, UiChatToolPart } from '../../../../contract/gateway/types.gen.ts';
import { parseToolInput } from '../../../../kernel/json-value.ts';
import { readString, readToolName } from '../translation/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import type { SpecAssistantPart, SpecToolPart } from '../translation/spec-prompt.ts';

type ToolResult = Extract<SpecToolPart, { type: 'tool-result' }>;

export interface ToolParts {
  /** Parts of the assistant's message. */
  content: SpecAssistantPart[];
  /** Parts of the message with outputs, which follows it. */
  results: SpecToolPart[];
}

type CallPart = UiChatToolPart | UiChatOtherPart;

const staticPrefix = 'tool-';

export function isToolPart(part: UiChatPart): part is CallPart {
  return part.type === 'dynamic-tool' || part.type.startsWith(staticPrefix);
}

/**
 * A call without an output is dropped, with a hint. Providers refuse a conversation with such a call, so a
 * chat that was stopped during a call could not continue otherwise.
 */
export function toToolParts(part: CallPart, path: string, hints: DroppedHints): ToolParts {
  const { approval, providerExecuted } = part;
  const toolCallId = readString(part.toolCallId, `${path}.toolCallId`);
  readString(part.state, `${path}.state`);
  const toolName = toolNameOf(part, path);
  const call: SpecAssistantPart = {
    type: 'tool-call',
    toolCallId,
    toolName,
    input: inputOf(part),
    ...(providerExecuted === undefined ? {} : { providerExecuted }),
    ...optionsOf(part.callProviderMetadata),
  };
  const output = outputOf(part);
  if (output !== undefined) {
    // Like the SDK's own conversion, a result without metadata gets that of its call.
    const result: ToolResult = {
      type: 'tool-result',
      toolCallId,
      toolName,
      output,
      ...optionsOf(part.resultProviderMetadata ?? part.callProviderMetadata),
    };
    return providerExecuted === true
      ? { content: [call, result], results: [] }
      : { content: [call], results: [result] };
  }
  if (providerExecuted === true && approval?.approved !== undefined)
    return { content: [call], results: [toDecision(approval.id, approval.approved, approval.reason)] };
  hints.add('tool calls without an output', 'are not sent to the model');
  return { content: [], results: [] };
}

function toolNameOf({ type, ...part }: CallPart, path: string): string {
  return type === 'dynamic-tool'
    ? readToolName(part['toolName'], `${path}.toolName`)
    : readToolName(type.slice(staticPrefix.length), `${path}.type`);
}

// Providers require an object, so a missing input becomes an empty object.
function inputOf({ input, rawInput }: CallPart): unknown {
  if (input !== undefined && input !== null) return input;
  return typeof rawInput === 'string' ? parseToolInput(rawInput) : (rawInput ?? {});
}

/** Undefined while there is no output. */
function outputOf({
  state,
  output,
  preliminary,
  errorText,
  approval,
}: CallPart): ToolResult['output'] | undefined {
  if (state === 'output-error') return { type: 'error-text', value: errorText ?? 'The tool failed.' };
  if (state === 'output-denied' || (state === 'approval-responded' && approval?.approved === false))
    return {
      type: 'execution-denied',
      ...(approval?.reason === undefined ? {} : { reason: approval.reason }),
    };
  if (state !== 'output-available' || preliminary === true) return undefined;
  return typeof output === 'string'
    ? { type: 'text', value: output }
    : { type: 'json', value: output ?? null };
}

function toDecision(approvalId: string, isApproved: boolean, reason: string | undefined): SpecToolPart {
  return {
    type: 'tool-approval-response',
    approvalId,
    approved: isApproved,
    ...(reason === undefined ? {} : { reason }),
  };
}

function optionsOf(metadata: UiChatToolPart['callProviderMetadata']): {
  providerOptions?: NonNullable<UiChatToolPart['callProviderMetadata']>;
} {
  return metadata === undefined ? {} : { providerOptions: metadata };
}
