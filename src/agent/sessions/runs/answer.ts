// The model's answer to an input: what the model is shown, the loop, and when the conversation is compacted on the way.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import { estimateTokens, type Conversation } from '../event-log/conversation.ts';
import { compact } from '../model-loop/compaction.ts';
import type { LoopResult, ModelLoopOptions, ModelMessage } from '../model-loop/loop.ts';
import { systemPrompt, systemSections } from '../model-loop/system-prompt.ts';
import type { ActiveRun, RunnerOptions } from './active-run.ts';
import { takeSteers } from './steering.ts';

// Share of the context window. Beyond it the past is summed up before the next step.
const compactAtShare = 0.8;

export async function answer(
  options: RunnerOptions,
  run: ActiveRun,
  model: LanguageModelV3,
): Promise<LoopResult> {
  const { registry, modelLoop, limits } = options;
  const { started, handle, writer, runLog } = run;
  const { session, runId } = started;
  const { signal } = handle.abort;
  const { hooks } = registry;
  const hookContext = { sessionId: session.id, runId, signal };
  const conversation = await options.eventLog.conversation(session, started.seq, started.input);
  const messages = await modelLoop.toModelMessages(conversation);
  const inputText = lastText(conversation);
  const prompt = await hooks.pipeline(
    'prompt.before',
    { system: systemPrompt(systemSections(options.name, registry, session)), text: inputText },
    hookContext,
  );
  await hooks.guard('prompt.before', prompt, hookContext);
  if (prompt.text !== inputText) replaceLastText(messages, inputText, prompt.text);
  const result = await modelLoop.runModelLoop({
    model,
    system: prompt.system,
    messages,
    registry,
    hooks,
    sessionId: session.id,
    runId,
    workspace: options.workspace,
    maxSteps: limits.maxSteps,
    toolTimeoutMs: limits.toolTimeoutMs,
    modelRetries: limits.modelRetries,
    signal,
    writer,
    approve: (call) => requestApproval(options, run, call),
    steer: (parts) => (handle.hasSteer ? takeSteers(options, run, parts) : Promise.resolve([])),
    shorten: createShortener(options, run, {
      model,
      conversation,
      system: prompt.system,
      earlierCount: messages.length - 1,
    }),
    clock: options.clock,
    log: runLog,
    traces: options.traces,
  });
  const outcome = result.problem === null ? 'completed' : result.problem.code;
  hooks.effect('prompt.after', { text: result.text, outcome }, hookContext);
  return result;
}

async function requestApproval(
  { store, agentId, approvals }: RunnerOptions,
  { started: { session, runId }, handle, writer }: ActiveRun,
  { tool, toolCallId, input }: Parameters<ModelLoopOptions['approve']>[0],
): ReturnType<ModelLoopOptions['approve']> {
  // Read again, because `attended` may have changed since the run started.
  const current = await store.session(agentId, { key: session.key });
  return approvals.request({
    sessionKey: session.key,
    runId,
    isAttended: current?.attended ?? false,
    queueLength: current?.queueLength ?? 0,
    toolCallId,
    toolName: tool.name,
    input,
    signal: handle.abort.signal,
    writer,
  });
}

/** Compacts everything before this run's input, at most once in a run. `earlierCount` messages are before the input. */
function createShortener(
  { contextTokens, modelLoop }: RunnerOptions,
  { started, handle, writer }: ActiveRun,
  {
    model,
    conversation,
    system,
    earlierCount,
  }: { model: LanguageModelV3; conversation: Conversation; system: string; earlierCount: number },
): ModelLoopOptions['shorten'] {
  let isCompacted = earlierCount < 1;
  return async (messages, lastInputTokens) => {
    if (isCompacted) return null;
    const window = await contextTokens(started.model);
    if (window === null) return null;
    const tokens = Math.max(lastInputTokens, estimateTokens(messages) + estimateTokens(system));
    if (tokens < window * compactAtShare) return null;
    const past: Conversation = {
      summary: conversation.summary,
      messages: conversation.messages.slice(0, -1),
    };
    const { summary, usage } = await compact({
      writer,
      model,
      conversation: past,
      toModelMessages: modelLoop.toModelMessages,
      summarize: modelLoop.summarize,
      reason: 'full',
      signal: handle.abort.signal,
    });
    isCompacted = true;
    const summaryMessages = await modelLoop.toModelMessages({ summary, messages: [] });
    return { messages: [...summaryMessages, ...messages.slice(earlierCount)], usage };
  };
}

function lastText({ messages }: Conversation): string {
  const parts = messages.at(-1)?.message.parts ?? [];
  return parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
}

// Attached files come before the text in the same content, and stay.
function replaceLastText(messages: ModelMessage[], before: string, after: string): void {
  const last = messages.at(-1);
  if (last?.role !== 'user') return;
  if (typeof last.content === 'string') {
    last.content = last.content.slice(0, last.content.length - before.length) + after;
    return;
  }
  const [first] = last.content;
  if (first?.type === 'text') first.text = first.text.slice(0, first.text.length - before.length) + after;
}
