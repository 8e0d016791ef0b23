// What the steps and tools of one model loop share: its options, its state and its result.
import type { ModelMessage } from 'ai';
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { Traces } from '../../../kernel/telemetry/traces.ts';
import type { Hooks, PluginRegistry, Tool } from '../../plugins/index.ts';
import type { ApprovalVerdict } from '../approvals/approvals.ts';
import type { SessionEvent } from '../event-log/events.ts';
import type { MessageFold } from './message.ts';
import type { RunWriter } from './run-writer.ts';

export type FinishReason = 'stop' | 'length' | 'content-filter' | 'tool-calls' | 'error' | 'other';

export interface ModelLoopOptions {
  model: LanguageModelV3;
  system: string;
  /** The conversation, the new input last. */
  messages: ModelMessage[];
  registry: PluginRegistry;
  hooks: Hooks;
  sessionId: string;
  runId: string;
  workspace: string;
  maxSteps: number;
  toolTimeoutMs: number;
  /** Retries of a step that failed before its first byte. */
  modelRetries: number;
  /** Ends the loop; a Problem as its reason becomes the problem of the result. */
  signal: AbortSignal;
  writer: Pick<RunWriter, 'record' | 'defer' | 'addText' | 'endText'>;
  /** Asks whether a tool may run. Resolves with a denial at the latest when the request expires. */
  approve(call: { tool: Tool; toolCallId: string; input: unknown }): Promise<ApprovalVerdict>;
  /** Inputs for the next step. `parts` is the message so far; it ends here when there are any. */
  steer(parts: UiMessagePart[]): Promise<ModelMessage[]>;
  /** Shortens a conversation that would not fit the model; null when it fits. `usage` is that of the summary. */
  shorten(
    messages: ModelMessage[],
    lastInputTokens: number,
  ): Promise<{ messages: ModelMessage[]; usage: RunUsage } | null>;
  clock: Clock;
  log: Log;
  traces: Traces;
}

/** Also of a loop that failed half-way. */
export interface LoopResult {
  parts: UiMessagePart[];
  text: string;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** Null when the loop ended well. */
  problem: Problem | null;
}

export interface LoopState {
  messages: ModelMessage[];
  /** The message that the model is writing; a new one after a steer. */
  message: MessageFold;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** Of the last step, its answer included. */
  lastInputTokens: number;
  /** The first error, undefined while there is none. */
  failure: unknown;
}

/** What the steps of one loop share. */
export interface StepContext {
  options: ModelLoopOptions;
  state: LoopState;
  /** Aborted from outside, or after a failed write. */
  signal: AbortSignal;
  hookContext: { sessionId: string; runId: string; signal: AbortSignal };
  /** Resolves after the events are durable; a failure ends the loop. */
  record(events: SessionEvent[]): Promise<void>;
}
