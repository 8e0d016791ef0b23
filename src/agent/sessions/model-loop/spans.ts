// The spans of a run, of its steps and of its tool calls, named by OpenTelemetry's
// conventions for generative AI. No span carries texts, tool inputs or tool outputs.
import type { RunUsage } from '../../../contract/agent/types.gen.ts';
import type { Span, Traces } from '../../../kernel/telemetry/traces.ts';

interface TracedRun {
  agentId: string;
  /** The name of the agent. */
  name: string;
  sessionId: string;
  runId: string;
  model: string;
  /** The `traceparent` of the request that queued the run. The span links to it. */
  traceparent: string | undefined;
}

/** The root of a trace of its own, because a run may start long after its request. */
export function runSpan(
  traces: Traces,
  { agentId, name, sessionId, runId, model, traceparent }: TracedRun,
): Span {
  return traces.start(`invoke_agent ${name}`, {
    isRoot: true,
    link: traceparent,
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

interface SpanResult {
  usage: RunUsage | undefined;
  finishReason: string | null | undefined;
  /** The error code of a failed run or step. */
  reason: string | undefined;
}

export function endSpan(span: Span, { usage, finishReason, reason }: SpanResult): void {
  span.set({
    'gen_ai.usage.input_tokens': usage?.inputTokens,
    'gen_ai.usage.output_tokens': usage?.outputTokens,
    'townhall.finish_reason': finishReason ?? undefined,
  });
  if (reason !== undefined) span.fail(reason);
  span.end();
}
