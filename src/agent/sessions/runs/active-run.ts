// A run that this process executes, and the options of its execution.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { RunUsage, UiMessage } from '../../../contract/agent/types.gen.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Problem } from '../../../kernel/problem.ts';
import type { Traces } from '../../../kernel/telemetry/traces.ts';
import type { Permissions } from '../../permissions/index.ts';
import type { PluginRegistry, Workspace } from '../../plugins/index.ts';
import type { RunSnapshot, Snapshots } from '../../snapshots/index.ts';
import type { Workspaces } from '../../workspaces/index.ts';
import type { Approvals } from '../approvals/approvals.ts';
import type { EventLog } from '../event-log/log.ts';
import type { SessionStore } from '../event-log/session-store.ts';
import type { EventStore } from '../event-log/store.ts';
import type { FinishReason } from '../model-loop/loop.ts';
import type { ModelLimits } from '../model-loop/prompt/model-limits.ts';
import type { ModelRetryLimits } from '../model-loop/model-retry.ts';
import type { RenderConversation } from '../model-loop/prompt/prompt.ts';
import type { RunWriter } from '../model-loop/run-writer.ts';
import type { StartedRun } from './submission.ts';
import type { RunKey, Settlement, SettleResult } from './settlement.ts';
import type { RunStore } from './store.ts';

export interface RunnerOptions {
  eventLog: EventLog;
  store: SessionStore;
  runStore: RunStore;
  events: EventStore;
  approvals: Approvals;
  permissions: Permissions;
  snapshots: Snapshots;
  agentId: string;
  /** The name of the agent, for its system prompt and its spans. */
  name: string;
  /** Throws a Problem when the model is not available. */
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  modelLimits: ModelLimits;
  render: RenderConversation;
  registry: PluginRegistry;
  workspaces: Workspaces;
  limits: ModelRetryLimits & { maxSteps: number; toolTimeoutMs: number };
  /** Whether another process may queue inputs for the runs of this process. */
  hasReplicas: boolean;
  /**
   * Writes the outcome. Null when another process has settled the run, a Problem
   * when it could not be written.
   */
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

/** The handle of an active run for the rest of the process. */
export interface RunHandle {
  abort: AbortController;
  /** Whether inputs may be waiting for the next step. */
  hasSteer: boolean;
  /** Whether inputs were taken into the run, which are settled with it. */
  hasTakenSteers: boolean;
  /** The `traceparent` of the request that queued the run; undefined when another process accepted it. */
  traceparent: string | undefined;
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
  snapshot: RunSnapshot;
  /** The session's folder; a Problem when this machine does not have it. */
  workspace: Workspace | Problem;
  /** The message that the model is writing; null for a compaction. A steer ends it and begins another. */
  messageId: string | null;
  /** The event up to which the run has read its conversation. */
  seq: number;
  createdAt: string;
  runLog: Log;
}
