// Builds the prompt of each step and keeps it within the model's limits: first it replaces old tool outputs
// by notes, then it summarizes earlier messages. Both are events in the log, so the next run, a restart and a
// fork send the same bytes.
import type { LanguageModelV3, LanguageModelV3Message } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import { Problem } from '../../../kernel/problem.ts';
import { exceedsGatewayLimit } from '../../prompt-bytes.ts';
import type { Conversation } from '../event-log/conversation.ts';
import type { SessionEvent } from '../event-log/events.ts';
import { compact, planWithinRun } from './compaction.ts';
import { estimateJson, estimateMessages } from './prompt/estimate.ts';
import type { Limits, ModelLimits } from './prompt/model-limits.ts';
import { renderParts, type Omission, type PromptView, type RenderConversation } from './prompt/prompt.ts';
import { isPrunable, minPrunedCharacters, splitSteps } from './prompt/answer.ts';

export interface RunContext {
  /** The prompt of the next step, without the system prompt. */
  prompt(parts: readonly UiMessagePart[]): LanguageModelV3Message[];
  /** Provider options of the call as a whole. */
  callOptions(): { providerOptions?: Record<string, Record<string, never>> };
  /** Shortens the prompt if it would not fit the model. */
  fit(parts: readonly UiMessagePart[], step: number): Promise<void>;
  /** Shortens the prompt after the model refused it as too long. False when nothing is left to shorten. */
  shorten(parts: readonly UiMessagePart[], step: number): Promise<boolean>;
  /** The final error of a prompt that cannot be shortened any further. */
  overflowProblem(parts: readonly UiMessagePart[], refusal: Problem): Problem;
  /** Leaves out the files after a refusal. False when there are none. */
  leaveOutFiles(): Promise<boolean>;
  /** Records that the model accepts no files, after it has accepted the request without them. */
  learnNoFiles(): void;
  /** Sets the number of tokens that the model reported for the last step, its answer included. */
  countTokens(tokens: number): void;
  /** Reads the conversation again, after an input was taken into the run. */
  reload(): Promise<void>;
}

export interface RunContextOptions {
  model: LanguageModelV3;
  system: string;
  /** The definitions of the tools, for counting. */
  tools(): unknown;
  limits: ModelLimits;
  render: RenderConversation;
  /** The conversation at a seq or later, as this run sees it. */
  readConversation(seq: number): Promise<Conversation>;
  startSeq: number;
  messageId(): string;
  record(events: SessionEvent[]): Promise<number>;
  addUsage(usage: RunUsage): void;
  /** Waits before the summary is attempted again; throws the error when it must not be. */
  recover(error: unknown, step: number): Promise<void>;
  signal: AbortSignal;
}

// Shares of the context window. A prompt above this share is shortened; the rest is for the answer and for
// errors of the estimate.
const fullShare = 0.8;
// The newest tool outputs, which are kept when older outputs become notes.
const keepOutputsShare = 0.2;
// The newest turns, which a summary does not replace.
const keepTurnsShare = 0.25;
// Every change of earlier messages invalidates the provider's prompt cache, so it has to free this much.
const minFreedShare = 0.1;
// After a refusal a smaller gain is worth a summary.
const minFreedByRefusalShare = 0.02;
// The largest share for the texts of one input, or for the tool outputs of one step.
const maxTextShare = 0.35;
// The window that is assumed for a model whose window is unknown.
const defaultWindow = 128_000;
// Without a known window only the gateway's limit of bytes makes the loop clip texts.
const maxUnknownTextTokens = Number.POSITIVE_INFINITY;
// A refusal does not reveal the exact limit, so the next prompt is sized well below the refused one.
const shareOfRefusedPrompt = 0.7;
// The gateway accepts 4,096 messages in a prompt.
const maxMessages = 4_000;
// The prompt is shortened before it reaches the gateway's limit of bytes.
const bytesShare = 0.95;

interface ContextState {
  conversation: Conversation;
  messages: LanguageModelV3Message[];
  messageTokens: number[];
  limits: Limits;
  view: PromptView;
  hasFiles: boolean;
  leavesOutFiles: boolean;
  /** A limit that holds for this run alone; null without one. */
  maxTokens: number | null;
  /** The tokens as the model counted them; 0 after the prompt has changed. */
  countedTokens: number;
  /** The omissions that this run has reported. */
  reportedOmissions: Set<string>;
  seq: number;
}

type Context = RunContextOptions & { state: ContextState };

export async function createRunContext(options: RunContextOptions): Promise<RunContext> {
  const state = {
    reportedOmissions: new Set<string>(),
    seq: options.startSeq,
    leavesOutFiles: false,
    maxTokens: null,
  } as ContextState;
  const context: Context = { ...options, state };
  await load(context);
  return {
    prompt: (parts) => promptOf(context, parts),
    callOptions: () => callOptions(context),
    async fit(parts, step) {
      await refreshLimits(context);
      if (!(await isFull(context, parts))) return;
      const minFreed = Math.ceil(windowOf(context) * minFreedShare);
      if ((await prune(context, parts, minFreed)) && !(await isFull(context, parts))) return;
      // The gateway would refuse a request that is too large, so then any gain is worth a summary.
      const isTooLarge = await exceedsRequest(context, parts);
      await summarizePast(context, parts, { step, minFreed: isTooLarge ? 1 : minFreed });
    },
    async shorten(parts, step) {
      const estimateBefore = estimateMessages(promptOf(context, parts));
      await lowerLimit(context, parts);
      const isPruned = await prune(context, parts, 1);
      const minFreed = Math.ceil(windowOf(context) * minFreedByRefusalShare);
      if (!isPruned || (await isFull(context, parts)))
        await summarizePast(context, parts, { step, minFreed });
      return estimateMessages(promptOf(context, parts)) < estimateBefore;
    },
    overflowProblem: (parts, refusal) => overflowProblem(context, parts, refusal),
    async leaveOutFiles() {
      if (!state.hasFiles || state.leavesOutFiles) return false;
      state.leavesOutFiles = true;
      await load(context);
      return true;
    },
    learnNoFiles: () => options.limits.learnNoFiles(options.model.modelId),
    countTokens(tokens) {
      state.countedTokens = tokens;
    },
    reload: () => load(context),
  };
}

/** Reads and renders the conversation anew. */
async function load(context: Context): Promise<void> {
  const { state, model } = context;
  state.limits = await readLimits(context);
  const { contextTokens } = state.limits;
  state.conversation = await context.readConversation(state.seq);
  state.view = {
    model: model.modelId,
    accepts: (kind) => kind === 'text' || (!state.leavesOutFiles && state.limits.accepts(kind)),
    maxTextTokens: contextTokens === null ? maxUnknownTextTokens : Math.floor(contextTokens * maxTextShare),
  };
  const { messages, messageTokens, omissions } = await context.render(state.conversation, state.view);
  state.messages = messages;
  state.messageTokens = messageTokens;
  state.hasFiles = messages.some(
    ({ content }) => typeof content !== 'string' && content.some(({ type }) => type === 'file'),
  );
  state.countedTokens = 0;
  await reportOmissions(context, omissions);
}

async function readLimits({ limits, model, state }: Context): Promise<Limits> {
  const { contextTokens, ...otherLimits } = await limits.of(model.modelId);
  const knownLimits = [contextTokens, state.maxTokens].filter((tokens) => tokens !== null);
  return { ...otherLimits, contextTokens: knownLimits.length === 0 ? null : Math.min(...knownLimits) };
}

/**
 * Lowers the limit after a prompt that was too long. The new limit holds for this run alone when the refusal
 * may have another reason than the model's window: the gateway's limit of bytes, a file that is too large, or
 * anything else when the prompt is far below the window in the catalog.
 */
async function lowerLimit(context: Context, parts: readonly UiMessagePart[]): Promise<void> {
  const { state, limits, model } = context;
  const promptTokens = countTokens(context, parts);
  // Below this limit the fixed part alone would fill the window of every session.
  const leastTokens = Math.ceil(fixedTokens(context) / fullShare);
  const tokens = Math.max(leastTokens, Math.floor(promptTokens * shareOfRefusedPrompt));
  const { contextTokens } = await limits.of(model.modelId);
  const isFarBelow = contextTokens !== null && promptTokens < contextTokens / 2;
  if (state.hasFiles || isFarBelow || (await exceedsGatewayLimit(promptOf(context, parts))))
    state.maxTokens = tokens;
  else limits.learnWindow(model.modelId, tokens);
  await load(context);
}

async function refreshLimits(context: Context): Promise<void> {
  const { state } = context;
  const current = await readLimits(context);
  if (current.contextTokens !== state.limits.contextTokens) await load(context);
}

/** Reports each omission once per run. */
async function reportOmissions({ state, record }: Context, omissions: readonly Omission[]): Promise<void> {
  const newOmissions = omissions.filter(({ message }) => !state.reportedOmissions.has(message));
  if (newOmissions.length === 0) return;
  for (const { message } of newOmissions) state.reportedOmissions.add(message);
  await record(newOmissions.map(({ code, message }) => ({ type: 'run.warning', code, message })));
}

function promptOf(context: Context, parts: readonly UiMessagePart[]): LanguageModelV3Message[] {
  const { state, messageId } = context;
  const answer = { messageId: messageId(), isOwn: true };
  return [...state.messages, ...renderParts(parts, answer, state.conversation, state.view)];
}

// Anthropic caches prompts only on request; the other providers ignore the option.
// It is an option of the call, so that the messages stay the same from step to step.
function callOptions({ state, model }: Context): ReturnType<RunContext['callOptions']> {
  const isAnthropic = state.limits.provider === 'anthropic' || /anthropic|claude/i.test(model.modelId);
  if (!isAnthropic) return {};
  return { providerOptions: { anthropic: { cacheControl: { type: 'ephemeral' } as never } } };
}

function countTokens(context: Context, parts: readonly UiMessagePart[]): number {
  const { state } = context;
  return Math.max(state.countedTokens, fixedTokens(context) + estimateMessages(promptOf(context, parts)));
}

/** The system prompt and the definitions of the tools, which no summary shortens. */
function fixedTokens({ system, tools }: Context): number {
  return estimateJson(system) + estimateJson(tools());
}

function windowOf({ state }: Context): number {
  return state.limits.contextTokens ?? defaultWindow;
}

function overflowProblem(context: Context, parts: readonly UiMessagePart[], refusal: Problem): Problem {
  const { model, state } = context;
  const { contextTokens } = state.limits;
  const window = contextTokens === null ? 'the model' : `the ${contextTokens} tokens of its context`;
  const messages = estimateMessages(promptOf(context, parts));
  return new Problem(
    refusal.kind,
    refusal.code,
    `The prompt for ${model.modelId} is too long and nothing is left to shorten: the ` +
      `instructions and the definitions of the tools have about ${fixedTokens(context)} tokens ` +
      `and the messages that have to stay about ${messages}, which does not fit ${window}. ` +
      'Disable plugins or MCP servers, send a shorter message, or choose a model with a larger ' +
      `context. ${refusal.message}`,
    { cause: refusal.cause },
  );
}

async function isFull(context: Context, parts: readonly UiMessagePart[]): Promise<boolean> {
  const { contextTokens } = context.state.limits;
  if (contextTokens !== null && countTokens(context, parts) > contextTokens * fullShare) return true;
  return exceedsRequest(context, parts);
}

/** Whether the prompt is about to exceed what the gateway accepts in one request, whatever its tokens. */
async function exceedsRequest(context: Context, parts: readonly UiMessagePart[]): Promise<boolean> {
  const messages = promptOf(context, parts);
  return messages.length > maxMessages || (await exceedsGatewayLimit(messages, bytesShare));
}

/**
 * Replaces old tool outputs by notes, if that frees `minFreed` tokens. Returns whether it did. Outputs of the
 * last step stay.
 */
async function prune(context: Context, parts: readonly UiMessagePart[], minFreed: number): Promise<boolean> {
  const { state, record } = context;
  const keepTokens = windowOf(context) * keepOutputsShare;
  const outputs = prunableOutputs(context, parts);
  // A step that has only just started is empty. The last step is then the one before it, whose outputs the
  // model has not seen yet.
  const lastStep = new Set<unknown>(splitSteps(parts).findLast((step) => step.length > 0));
  let newerTokens = 0;
  const oldOutputs = outputs.reverse().filter(({ part, tokens }) => {
    newerTokens += tokens;
    return newerTokens > keepTokens && !lastStep.has(part);
  });
  const tokens = oldOutputs.reduce((sum, output) => sum + output.tokens, 0);
  const newestOutput = oldOutputs[0];
  if (newestOutput === undefined || tokens < minFreed) return false;
  state.seq = await record([
    {
      type: 'context.pruned',
      upToSeq: newestOutput.seq,
      minCharacters: minPrunedCharacters,
      outputs: oldOutputs.length,
      tokens,
    },
  ]);
  await load(context);
  return true;
}

/** The tool outputs that may become notes, the oldest first. */
function prunableOutputs({ state }: Context, parts: readonly UiMessagePart[]) {
  const { messages, prunedUpToSeq } = state.conversation;
  return [...messages.flatMap(({ message }) => message.parts), ...parts]
    .flatMap((part) => {
      if (part.type !== 'dynamic-tool' || !isPrunable(part)) return [];
      const seq = part.outputSeq as number;
      return seq <= prunedUpToSeq ? [] : [{ part, seq, tokens: estimateJson(part.output) }];
    })
    .sort((a, b) => a.seq - b.seq);
}

/**
 * Replaces earlier messages and steps by a summary, unless that would free fewer than `minFreed` tokens: when
 * the fixed part or one message fills the window, every step would otherwise pay for another summary.
 */
async function summarizePast(
  context: Context,
  parts: readonly UiMessagePart[],
  { step, minFreed }: { step: number; minFreed: number },
): Promise<void> {
  const { state, model, messageId, signal } = context;
  const { conversation, messageTokens, limits } = state;
  const window = windowOf(context);
  // Keep at most half of the tokens that the fixed part leaves free, so that the shortened prompt is not full
  // again at once.
  const freeTokens = Math.max(0, (window * fullShare - fixedTokens(context)) / 2);
  const keepTokens = Math.floor(Math.min(window * keepTurnsShare, freeTokens));
  const runPast = {
    conversation,
    messageTokens,
    messageId: messageId(),
    parts,
    stepTokens: stepTokensOf(context, parts),
  };
  const plan = planWithinRun(runPast, keepTokens);
  if (plan === null || plan.tokens < minFreed) return;
  const { usage, seq } = await compact({
    writer: { record: context.record },
    model,
    plan,
    earlierSummary: conversation.summary,
    contextTokens: limits.contextTokens,
    reason: 'full',
    signal,
    recover: (error) => context.recover(error, step),
  });
  context.addUsage(usage);
  state.seq = seq;
  await load(context);
}

function stepTokensOf({ state }: Context, parts: readonly UiMessagePart[]): number[] {
  const { conversation, view } = state;
  return splitSteps(parts).map((step) =>
    estimateMessages(renderParts(step, { messageId: null, isOwn: true }, conversation, view)),
  );
}
