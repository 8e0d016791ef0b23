// A run that this process executes, and what it is executed with.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessage } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { Traces } from '../../../kernel/telemetry/traces.ts';
import type { PluginRegistry } from '../../plugins/index.ts';
import type { Approvals } from '../approvals/approvals.ts';
import type { Conversation } from '../event-log/conversation.ts';
import type { EventLog } from '../event-log/log.ts';
import type { SessionStore } from '../event-log/session-store.ts';
import type { EventStore } from '../event-log/store.ts';
import type { FinishReason, ModelMessage, RunModelLoop } from '../model-loop/loop.ts';
import type { RunWriter } from '../model-loop/run-writer.ts';
import type { StartedRun } from './submission.ts';
import type { RunKey, Settlement, SettleResult } from './settlement.ts';
import type { RunStore } from './store.ts';

/** The functions that need the `ai` package, which is loaded late; see `model-loop/ai-package.ts`. */
export interface ModelLoop {
  runModelLoop: RunModelLoop;
  summarize(options: {
    model: LanguageModelV3;
    messages: ModelMessage[];
    signal: AbortSignal;
  }): Promise<{ summary: string; usage: RunUsage }>;
  toModelMessages(conversation: Conversation): Promise<ModelMessage[]>;
}

export interface RunnerOptions {
  eventLog: EventLog;
  store: SessionStore;
  runStore: RunStore;
  events: EventStore;
  approvals: Approvals;
  agentId: string;
  name: string;
  /** Throws a Problem when the model is not available. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  /** The size of a model's context window, null when unknown. */
  contextTokens(modelId: string): Promise<number | null>;
  modelLoop: ModelLoop;
  registry: PluginRegistry;
  workspace: string;
  limits: { maxSteps: number; toolTimeoutMs: number; modelRetries: number };
  /** Whether another process may queue inputs for the runs of this one. */
  hasReplicas: boolean;
  /** Writes the outcome. Null when another process has settled the run, a Problem when it could not be written. */
  settle(run: RunKey, settlement: Settlement, runLog: Log): Promise<SettleResult | null | Problem>;
  clock: Clock;
  log: Log;
  traces: Traces;
}

export interface CompletedRun {
  messageId: string;
  message: UiMessage;
  text: string;
  usage: RunUsage;
  finishReason: FinishReason;
}

/** How the rest of the process talks to a run under way. */
export interface RunHandle {
  abort: AbortController;
  /** Inputs may wait for the next step. */
  hasSteer: boolean;
  /** Inputs were taken into the run and are settled with it. */
  hasTakenSteers: boolean;
  /** The `traceparent` of the request that the run was accepted from, where this process accepted it. */
  request: string | undefined;
}

export interface RunResult {
  end: CompletedRun | Problem;
  /** The next run of the session, which the settlement has started. */
  next: StartedRun | null;
}

export interface ActiveRun {
  started: StartedRun;
  handle: RunHandle;
  writer: RunWriter;
  /** The message that the model is writing; null for a compaction. A steer ends it and begins another. */
  messageId: string | null;
  createdAt: string;
  runLog: Log;
}
