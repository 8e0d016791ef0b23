// The agent's tools as the `ai` package takes them: hooks, approval, the call, and its record in the log.
import { dynamicTool, jsonSchema, type ToolSet } from 'ai';
import { Problem } from '../../../kernel/problem.ts';
import { withSpan } from '../../../kernel/telemetry/traces.ts';
import { callAction, type Tool } from '../../plugins/index.ts';
import { toolSpan } from './spans.ts';
import type { StepContext } from './loop-state.ts';

/** Carries the reason of a failed action to the model as text. Its class marks failures that are recorded already. */
export class ActionFailed extends Error {
  override toString(): string {
    return this.message;
  }
}

export function createToolSet(context: StepContext): ToolSet {
  const { registry, traces, signal } = context.options;
  return Object.fromEntries(
    registry.tools.map((tool) => [
      tool.name,
      dynamicTool({
        description: tool.definition.description,
        inputSchema: jsonSchema(tool.definition.input),
        execute: (input, { toolCallId, abortSignal }) =>
          withSpan(traces, toolSpan(traces, { toolName: tool.name, toolCallId }), () =>
            runTool(context, { tool, toolCallId, input, signal: abortSignal ?? signal }),
          ),
      }),
    ]),
  );
}

interface ToolCall {
  tool: Tool;
  toolCallId: string;
  input: unknown;
  signal: AbortSignal;
}

/** The output for the model. Throws `ActionFailed` when the call is denied or fails. */
async function runTool(context: StepContext, requested: ToolCall): Promise<unknown> {
  const { record, options } = context;
  const { clock, hooks } = options;
  const { tool, toolCallId, signal } = requested;
  const toolName = tool.name;
  const hookContext = { ...context.hookContext, signal };
  const { input } = await hooks.pipeline(
    'tool.before',
    { toolName, toolCallId, input: requested.input },
    hookContext,
  );
  const call: ToolCall = { ...requested, input };
  await record([{ type: 'tool.started', toolCallId, toolName, input }]);
  const startedMs = clock.monotonicMs();
  const durationMs = () => Math.round(clock.monotonicMs() - startedMs);
  const isApproved = await requirePermission(context, call);
  const outcome = await execute(context, call, isApproved);
  if (!outcome.ok) {
    const errorText = outcome.message;
    hooks.effect('tool.after', { toolName, toolCallId, input, ok: false, output: errorText }, hookContext);
    await record([{ type: 'tool.failed', toolCallId, toolName, errorText, durationMs: durationMs() }]);
    throw new ActionFailed(errorText);
  }
  const { output } = await hooks.pipeline(
    'tool.after',
    { toolName, toolCallId, input, ok: true, output: outcome.output },
    hookContext,
  );
  await record([{ type: 'tool.output', toolCallId, output, durationMs: durationMs() }]);
  hooks.effect('tool.after', { toolName, toolCallId, input, ok: true, output }, hookContext);
  return output;
}

/** Whether a person or the policy has approved the call; false when it needs no approval. Throws when it is denied. */
async function requirePermission(
  { record, options, hookContext }: StepContext,
  { tool, toolCallId, input, signal }: ToolCall,
): Promise<boolean> {
  const toolName = tool.name;
  const deny = async (approvalId: string | null, reason: string): Promise<never> => {
    await record([{ type: 'tool.denied', toolCallId, toolName, approvalId, reason }]);
    throw new ActionFailed(reason);
  };
  try {
    await options.hooks.guard('tool.before', { toolName, toolCallId, input }, { ...hookContext, signal });
  } catch (refusal) {
    return deny(null, refusal instanceof Problem ? refusal.message : 'A plugin refuses the call.');
  }
  // The call itself refuses invalid input, so that needs no approval.
  if (!tool.check(input).ok || !tool.needsApproval(input)) return false;
  const verdict = await options.approve({ tool, toolCallId, input });
  return verdict.isApproved || deny(verdict.approvalId, verdict.reason);
}

/** A hook may answer in place of the tool. */
async function execute(
  { options, hookContext }: StepContext,
  { tool, toolCallId, input, signal }: ToolCall,
  isApproved: boolean,
): ReturnType<typeof callAction> {
  const { hooks, workspace, sessionId, toolTimeoutMs, clock, log } = options;
  const resolved = await hooks.resolve(
    'tool.before',
    { toolName: tool.name, toolCallId, input },
    { ...hookContext, signal },
  );
  if (resolved !== undefined) return { ok: true, output: resolved };
  return callAction({
    tool,
    input,
    workspace,
    sessionId,
    isApproved,
    signal,
    timeoutMs: toolTimeoutMs,
    clock,
    log,
  });
}
