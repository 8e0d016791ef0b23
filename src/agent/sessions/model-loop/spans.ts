// The spans of a run, of its steps and of its tool calls, named by OpenTelemetry's conventions for generative AI. Texts,
// tool inputs and tool outputs are in none of them.
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import type { Span, Traces } from '../../../kernel/telemetry/traces.ts';

/** A run is the root of its own trace, because it may come out of a queue. `request`, a `traceparent`, is linked. */
export function runSpan(
  traces: Traces,
  {
    agentId,
    name,
    sessionId,
    runId,
    model,
    request,
  }: {
    agentId: string;
    name: string;
    sessionId: string;
    runId: string;
    model: string;
    request: string | undefined;
  },
): Span {
  return traces.start(`invoke_agent ${name}`, {
    isRoot: true,
    link: request,
    attributes: {
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.provider.name': 'townhall',
      'gen_ai.agent.id': agentId,
      'gen_ai.agent.name': name,
      'gen_ai.conversation.id': sessionId,
      'gen_ai.request.model': model,
      'townhall.run_id': runId,
    },
  });
}

export function stepSpan(
  traces: Traces,
  { model, step, sessionId }: { model: string; step: number; sessionId: string },
): Span {
  return traces.start(`chat ${model}`, {
    kind: 'client',
    attributes: {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'townhall',
      'gen_ai.request.model': model,
      'gen_ai.conversation.id': sessionId,
      'townhall.step': step,
    },
  });
}

export function toolSpan(
  traces: Traces,
  { toolName, toolCallId }: { toolName: string; toolCallId: string },
): Span {
  return traces.start(`execute_tool ${toolName}`, {
    attributes: {
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': toolName,
      'gen_ai.tool.call.id': toolCallId,
      'gen_ai.tool.type': 'function',
    },
  });
}

/** `reason` is the code of a failure. */
export function endSpan(
  span: Span,
  {
    usage,
    finishReason,
    reason,
  }: { usage: RunUsage | undefined; finishReason: string | null | undefined; reason: string | undefined },
): void {
  span.set({
    'gen_ai.usage.input_tokens': usage?.inputTokens,
    'gen_ai.usage.output_tokens': usage?.outputTokens,
    'townhall.finish_reason': finishReason ?? undefined,
  });
  if (reason !== undefined) span.fail(reason);
  span.end();
}
