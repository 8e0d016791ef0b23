// The options, the state and the result of one model loop, which its steps and tools share.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessagePart } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { Traces } from '../../../kernel/telemetry/traces.ts';
import type { Hooks, PluginRegistry, Tool } from '../../plugins/index.ts';
import type { ApprovalVerdict } from '../approvals/approvals.ts';
import type { SessionEvent } from '../event-log/events.ts';
import type { RunContext } from './context.ts';
import type { MessageFold } from './message.ts';
import type { ModelRetry, ModelRetryLimits } from './model-retry.ts';
import type { RunWriter } from './run-writer.ts';
import type { ToolDeltas } from './tool-deltas.ts';

export type FinishReason = 'stop' | 'length' | 'content-filter' | 'tool-calls' | 'error' | 'other';

export interface PermitDecision {
  effect: 'allow' | 'ask' | 'deny';
  reason: string;
  /** The plugin that failed to report which permissions the call needs. */
  failedPlugin?: string;
}

export interface ModelLoopOptions extends ModelRetryLimits {
  model: LanguageModelV3;
  system: string;
  /** Creates the prompt builder; called once the loop can record events. */
  openContext(
    run: Pick<StepContext, 'record' | 'signal'> & {
      addUsage(usage: RunUsage): void;
      /** Waits, and resolves when the failed model call may be repeated; throws `error` when it is final. */
      recover(error: unknown, step: number): Promise<void>;
    },
  ): Promise<RunContext>;
  registry: PluginRegistry;
  hooks: Hooks;
  sessionId: string;
  runId: string;
  workspace: string;
  maxSteps: number;
  toolTimeoutMs: number;
  /** Ends the loop; a Problem as its reason becomes the problem of the result. */
  signal: AbortSignal;
  writer: Pick<RunWriter, 'record' | 'defer' | 'addText' | 'addMetadata' | 'endText' | 'endAllTexts'>;
  toolDeltas: ToolDeltas;
  /** The decision of the permission rules about a call. */
  permit(call: { tool: Tool; input: unknown }): Promise<PermitDecision>;
  /** Requests an approval. Resolves with the decision, or with a denial when the request expires. */
  approve(call: { tool: Tool; toolCallId: string; input: unknown }): Promise<ApprovalVerdict>;
  /** Called before each tool that may change files. */
  beforeChange(): Promise<void>;
  /**
   * Takes waiting `steer` inputs into the run, for its next step; returns whether there were any. `parts` is
   * the message so far, which then ends here.
   */
  steer(parts: UiMessagePart[]): Promise<boolean>;
  clock: Clock;
  log: Log;
  traces: Traces;
}

/** The result of a loop, whether or not it failed. */
export interface LoopResult {
  parts: UiMessagePart[];
  text: string;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** Null when the loop succeeded. */
  problem: Problem | null;
}

export interface LoopState {
  /** The message that the model is writing; a new one after a steer. */
  message: MessageFold;
  usage: RunUsage;
  finishReason: FinishReason | null;
  /** The first error; undefined while there is none. */
  failure: unknown;
  /** Whether the tools beyond the gateway's limits were reported. */
  hasReportedTools: boolean;
}

/** The state that the steps of one loop share. */
export interface StepContext {
  options: ModelLoopOptions;
  state: LoopState;
  context: RunContext;
  modelRetry: ModelRetry;
  /** Aborted from outside, or after a failed write. */
  signal: AbortSignal;
  hookContext: { sessionId: string; runId: string; signal: AbortSignal };
  /** Resolves with the seq of the last event once the events are durable; a failure ends the loop. */
  record(events: SessionEvent[]): Promise<number>;
}
