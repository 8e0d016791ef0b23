// Tool definitions for the model, and tool calls: hooks, permission, execution, and the events in the log.
import type { LanguageModelV3FunctionTool, LanguageModelV3ToolCall } from '@ai-sdk/provider';
import type { UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { parseToolInput } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import { withSpan } from '../../../kernel/telemetry/traces.ts';
import { callAction, type PluginRegistry, type Tool } from '../../plugins/index.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { splitSteps } from './prompt/answer.ts';
import { toolSpan } from './spans.ts';
import type { StepContext } from './loop-state.ts';

// The gateway's limits for one call: 512 tools, and 1 MiB of definitions, counted roughly.
const maxTools = 512;
const maxDefinitionBytes = 1024 * 1024 * 0.9;

/** The tools of a step. Tools beyond the gateway's limits are left out and reported once. */
export async function defineTools({
  options,
  state,
  record,
}: StepContext): Promise<LanguageModelV3FunctionTool[]> {
  const { tools, omittedNames } = toolsWithinLimits(options.registry);
  if (omittedNames.length > 0 && !state.hasReportedTools) {
    state.hasReportedTools = true;
    const names = omittedNames.slice(0, 10).join(', ');
    const message =
      `${omittedNames.length} tools are not offered to the model, because a call may have ` +
      `at most ${maxTools} tools and 1 MiB of definitions: ` +
      `${names}${omittedNames.length > 10 ? ', …' : ''}.`;
    await record([{ type: 'run.warning', code: 'tools_left_out', message }]);
  }
  return tools;
}

export function toolsWithinLimits(registry: PluginRegistry): {
  tools: LanguageModelV3FunctionTool[];
  omittedNames: string[];
} {
  const tools: LanguageModelV3FunctionTool[] = [];
  const omittedNames: string[] = [];
  let bytes = 0;
  for (const { name, definition } of registry.tools) {
    const tool = {
      type: 'function' as const,
      name,
      description: definition.description,
      inputSchema: definition.input as never,
    };
    const size = Buffer.byteLength(JSON.stringify(tool));
    if (tools.length === maxTools || bytes + size > maxDefinitionBytes) omittedNames.push(name);
    else {
      tools.push(tool);
      bytes += size;
    }
  }
  return { tools, omittedNames };
}

interface ToolCall {
  tool: Tool;
  toolCallId: string;
  input: unknown;
}

/**
 * Runs a tool call of the model and adds it to the message. Never throws: a failed write is stored in
 * `state.failure`.
 */
export function runToolCall(run: StepContext, part: LanguageModelV3ToolCall): Promise<void> {
  const { options, state } = run;
  const { traces, registry } = options;
  const { toolName, providerMetadata } = part;
  const toolCallId = uniqueCallId(state.message.parts(), part.toolCallId);
  const call = { toolCallId, toolName, input: parseToolInput(part.input), providerMetadata };
  state.message.startTool(call);
  const tool = registry.tools.find(({ name }) => name === toolName);
  const work = () =>
    tool === undefined
      ? failCall(run, call, `There is no tool "${toolName}".`)
      : runTool(run, { tool, toolCallId, input: call.input }, providerMetadata);
  return withSpan(traces, toolSpan(traces, { toolName, toolCallId }), work).catch((error: unknown) => {
    state.failure ??= error;
  });
}

// Two calls of one step with the same id would get each other's results.
function uniqueCallId(parts: readonly UiMessagePart[], callId: string): string {
  const step = splitSteps(parts).at(-1) ?? [];
  const ids = new Set(step.flatMap((part) => (part.type === 'dynamic-tool' ? [part.toolCallId] : [])));
  let uniqueId = callId;
  for (let count = 2; ids.has(uniqueId); count += 1) uniqueId = `${callId}_${count}`;
  return uniqueId;
}

type Metadata = LanguageModelV3ToolCall['providerMetadata'];

async function failCall(
  { record, state }: StepContext,
  call: { toolCallId: string; toolName: string; input: unknown; providerMetadata: Metadata },
  errorText: string,
): Promise<void> {
  const { toolCallId, toolName, input, providerMetadata } = call;
  await record([
    { type: 'tool.started', toolCallId, toolName, input, ...metadataMember(providerMetadata) },
    { type: 'tool.failed', toolCallId, toolName, errorText, durationMs: 0 },
  ]);
  state.message.endTool(toolCallId, { errorText });
}

function metadataMember(providerMetadata: Metadata): { providerMetadata?: Record<string, unknown> } {
  return providerMetadata === undefined ? {} : { providerMetadata };
}

async function runTool(run: StepContext, modelCall: ToolCall, metadata: Metadata): Promise<void> {
  const { record, state, hookContext, options } = run;
  const { clock, hooks } = options;
  const { tool, toolCallId } = modelCall;
  const toolName = tool.name;
  const { input } = await hooks.pipeline(
    'tool.before',
    { toolName, toolCallId, input: modelCall.input },
    hookContext,
  );
  // The message has the input that the log has and the tool gets, as after a crash.
  state.message.changeInput(toolCallId, input);
  const call: ToolCall = { ...modelCall, input };
  await record([{ type: 'tool.started', toolCallId, toolName, input, ...metadataMember(metadata) }]);
  const permission = await requirePermission(run, call);
  if (permission.denial !== null) return state.message.endTool(toolCallId, { denial: permission.denial });
  const startedMs = clock.monotonicMs();
  const outcome = await execute(run, call, permission.isApproved);
  const durationMs = Math.round(clock.monotonicMs() - startedMs);
  if (!outcome.ok) {
    const errorText = outcome.message;
    hooks.effect('tool.after', { toolName, toolCallId, input, ok: false, output: errorText }, hookContext);
    await record([{ type: 'tool.failed', toolCallId, toolName, errorText, durationMs }]);
    return state.message.endTool(toolCallId, { errorText });
  }
  const { output } = await hooks.pipeline(
    'tool.after',
    { toolName, toolCallId, input, ok: true, output: outcome.output },
    hookContext,
  );
  const outputSeq = await record([{ type: 'tool.output', toolCallId, output, durationMs }]);
  state.message.endTool(toolCallId, { output, outputSeq });
  hooks.effect('tool.after', { toolName, toolCallId, input, ok: true, output }, hookContext);
}

interface CallPermission {
  /** Whether a rule, a person, the policy or the tool itself allows the call; false for invalid input. */
  isApproved: boolean;
  /** Why the call is denied; null when it is not. */
  denial: { approvalId: string | null; reason: string } | null;
}

/** Whether a rule, a person or the policy allows the call. Invalid input needs no decision. */
async function requirePermission(
  { record, options, hookContext }: StepContext,
  { tool, toolCallId, input }: ToolCall,
): Promise<CallPermission> {
  const toolName = tool.name;
  const deny = async (approvalId: string | null, reason: string): Promise<CallPermission> => {
    await record([{ type: 'tool.denied', toolCallId, toolName, approvalId, reason }]);
    return { isApproved: false, denial: { approvalId, reason } };
  };
  try {
    await options.hooks.guard('tool.before', { toolName, toolCallId, input }, hookContext);
  } catch (refusal) {
    return deny(null, refusal instanceof Problem ? refusal.message : 'A plugin refused the call.');
  }
  // The call itself fails with invalid input, so it needs no approval.
  if (!tool.check(input).ok) return { isApproved: false, denial: null };
  const { effect, reason, failedPlugin } = await options.permit({ tool, input });
  if (failedPlugin !== undefined) await record([pluginFailure(failedPlugin, toolName)]);
  if (effect === 'deny') return deny(null, reason);
  if (effect === 'allow') return { isApproved: true, denial: null };
  const verdict = await options.approve({ tool, toolCallId, input });
  if (!verdict.isApproved) return deny(verdict.approvalId, verdict.reason);
  // Decide again: since the request, the session may have switched to plan mode, or a rule may have been
  // added.
  const newDecision = await options.permit({ tool, input });
  return newDecision.effect === 'deny' ? deny(null, newDecision.reason) : { isApproved: true, denial: null };
}

function pluginFailure(plugin: string, toolName: string): SessionEvent {
  const message =
    `The plugin "${plugin}" could not say which permissions a call of ${toolName} needs, so ` +
    'the call needs an approval.';
  return { type: 'run.warning', code: 'plugin_failed', message };
}

/** A hook may replace the tool and return its result. */
async function execute(
  { options, hookContext, signal }: StepContext,
  { tool, toolCallId, input }: ToolCall,
  isApproved: boolean,
): ReturnType<typeof callAction> {
  const { hooks, workspace, sessionId, toolTimeoutMs, toolDeltas, clock, log } = options;
  if (tool.definition.readOnly !== true) await options.beforeChange();
  const resolution = await hooks.resolve(
    'tool.before',
    { toolName: tool.name, toolCallId, input },
    hookContext,
  );
  if (resolution !== undefined) return { ok: true, output: resolution };
  const outcome = await callAction({
    tool,
    input,
    workspace,
    sessionId,
    isApproved,
    signal,
    timeoutMs: toolTimeoutMs,
    showOutput: (text) => toolDeltas.add('output', { toolCallId, toolName: tool.name }, text),
    clock,
    log,
  });
  toolDeltas.end('output', toolCallId);
  return outcome;
}
