// Answers an input with the model loop: the model's prompt, the loop, and the loop's access to the session.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { UiMessage } from '../../../contract/agent/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { HookValues } from '../../plugins/index.ts';
import type { Conversation } from '../event-log/conversation.ts';
import { createRunContext } from '../model-loop/context.ts';
import { runModelLoop, type LoopResult, type ModelLoopOptions } from '../model-loop/loop.ts';
import { createToolDeltas } from '../model-loop/tool-deltas.ts';
import { systemPrompt, systemSections } from '../model-loop/prompt/system-prompt.ts';
import { toolsWithinLimits } from '../model-loop/tools.ts';
import type { ActiveRun, RunnerOptions } from './active-run.ts';
import { untilAvailable } from './database-wait.ts';
import { takeSteers } from './steering.ts';

/**
 * Throws a Problem for a session without a workspace on this machine, and for a prompt that a plugin
 * refuses.
 */
export async function answer(
  options: RunnerOptions,
  run: ActiveRun,
  model: LanguageModelV3,
): Promise<LoopResult> {
  const { registry, limits, clock } = options;
  const { started, handle, writer, runLog, workspace } = run;
  if (workspace instanceof Problem) throw workspace;
  const { session, runId } = started;
  const { signal } = handle.abort;
  const { hooks } = registry;
  const hookContext = { sessionId: session.id, runId, signal };
  const input = lastInput(await readConversation(options, run));
  const prompt = await preparePrompt(options, run, input);
  const toolDeltas = createToolDeltas({
    publish: (delta) =>
      options.eventLog.addToolDelta(session.key, { ...delta, runId, messageId: run.messageId as string }),
    clock,
  });
  const result = await runModelLoop({
    model,
    system: prompt.system,
    openContext: (loop) => openContext(options, run, { loop, model, prompt, input }),
    registry,
    hooks,
    sessionId: session.id,
    runId,
    workspace: workspace.root,
    maxSteps: limits.maxSteps,
    toolTimeoutMs: limits.toolTimeoutMs,
    modelRetries: limits.modelRetries,
    modelWaitMs: limits.modelWaitMs,
    signal,
    writer,
    toolDeltas,
    permit: (call) => permit(options, run, { ...call, workspace: workspace.root }),
    approve: (call) => requestApproval(options, run, call),
    beforeChange: () => takeSnapshot(run),
    steer: (parts) => (handle.hasSteer ? takeSteers(options, run, parts) : Promise.resolve(false)),
    clock,
    log: runLog,
    traces: options.traces,
  });
  toolDeltas.close();
  const outcome = result.problem === null ? 'completed' : result.problem.code;
  hooks.effect('prompt.after', { text: result.text, outcome }, hookContext);
  return result;
}

/** The system prompt and the text of the input, after the plugins' hooks have changed them. */
async function preparePrompt(
  { name, registry }: RunnerOptions,
  { started: { session, runId }, handle }: ActiveRun,
  input: UiMessage | undefined,
): Promise<HookValues['prompt.before']> {
  const { hooks } = registry;
  const hookContext = { sessionId: session.id, runId, signal: handle.abort.signal };
  const system = systemPrompt(systemSections(name, registry, session));
  const prompt = await hooks.pipeline('prompt.before', { system, text: textOf(input) }, hookContext);
  await hooks.guard('prompt.before', prompt, hookContext);
  return prompt;
}

interface ContextInput {
  loop: Parameters<ModelLoopOptions['openContext']>[0];
  model: LanguageModelV3;
  prompt: HookValues['prompt.before'];
  input: UiMessage | undefined;
}

function openContext(
  options: RunnerOptions,
  run: ActiveRun,
  { loop, model, prompt, input }: ContextInput,
): ReturnType<ModelLoopOptions['openContext']> {
  return createRunContext({
    ...loop,
    model,
    system: prompt.system,
    tools: () => toolsWithinLimits(options.registry).tools,
    limits: options.modelLimits,
    render: options.render,
    readConversation: async (seq) => {
      run.seq = Math.max(run.seq, seq);
      return withInputText(await readConversation(options, run), input, prompt.text);
    },
    startSeq: run.started.seq,
    messageId: () => run.messageId as string,
  });
}

/** The conversation when the run started, or after the last event of the run that changed it. */
function readConversation(
  { eventLog, clock }: RunnerOptions,
  { started, seq, handle }: ActiveRun,
): Promise<Conversation> {
  const { signal } = handle.abort;
  const firstInput = seq === started.seq ? started.input : null;
  return untilAvailable(() => eventLog.conversation(started.session, seq, firstInput), { clock, signal });
}

function permit(
  { store, agentId, permissions, clock }: RunnerOptions,
  { started: { session }, handle }: ActiveRun,
  call: Parameters<ModelLoopOptions['permit']>[0] & { workspace: string },
): ReturnType<ModelLoopOptions['permit']> {
  const decide: () => ReturnType<ModelLoopOptions['permit']> = async () => {
    // Read the session again: its mode may have changed since the run started.
    const currentSession = await store.session(agentId, { key: session.key });
    if (currentSession?.mode === 'plan' && call.tool.definition.readOnly !== true)
      return {
        effect: 'deny',
        reason: 'This session only plans: tools that may change anything are refused.',
      };
    return permissions.decide(session.key, call);
  };
  return untilAvailable(decide, { clock, signal: handle.abort.signal });
}

async function requestApproval(
  { store, agentId, approvals, clock }: RunnerOptions,
  { started: { session, runId }, handle, writer }: ActiveRun,
  { tool, toolCallId, input }: Parameters<ModelLoopOptions['approve']>[0],
): ReturnType<ModelLoopOptions['approve']> {
  // Read the session again: `attended` may have changed since the run started.
  const { signal } = handle.abort;
  const currentSession = await untilAvailable(() => store.session(agentId, { key: session.key }), {
    clock,
    signal,
  });
  return approvals.request({
    sessionKey: session.key,
    runId,
    isAttended: currentSession?.attended ?? false,
    queueLength: currentSession?.queueLength ?? 0,
    toolCallId,
    toolName: tool.name,
    input,
    signal,
    writer,
  });
}

async function takeSnapshot({ snapshot, handle, writer }: ActiveRun): Promise<void> {
  const notice = await snapshot.beforeChange(handle.abort.signal);
  if (notice === null) return;
  await writer.record([{ type: 'run.warning', code: 'snapshot_skipped', message: notice }]);
}

function lastInput({ messages }: Conversation): UiMessage | undefined {
  return messages.at(-1)?.message;
}

function textOf(message: UiMessage | undefined): string {
  return (message?.parts ?? []).flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
}

/** The conversation with the input's text as the hooks replaced it. */
function withInputText(conversation: Conversation, input: UiMessage | undefined, text: string): Conversation {
  if (input === undefined || text === textOf(input)) return conversation;
  const parts = [...input.parts.filter((part) => part.type !== 'text'), { type: 'text' as const, text }];
  return {
    ...conversation,
    messages: conversation.messages.map((entry) =>
      entry.message.id === input.id ? { ...entry, message: { ...entry.message, parts } } : entry,
    ),
  };
}
