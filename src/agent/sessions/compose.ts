// Puts the sessions together: stores, event log, runs, routes.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../../kernel/clock.ts';
import type { Database } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import type { Traces } from '../../kernel/telemetry/traces.ts';
import type { PluginRegistry } from '../plugins/index.ts';
import type { Service } from '../service.ts';
import { createApprovals } from './approvals/approvals.ts';
import { approvalStore as openApprovalStore } from './approvals/store.ts';
import { attachmentFiles } from './attachments/files.ts';
import { attachmentStore } from './attachments/store.ts';
import { createEventLog } from './event-log/log.ts';
import { sessionStore, type SessionStore } from './event-log/session-store.ts';
import { eventStore } from './event-log/store.ts';
import type { ChatQueue } from './execute.ts';
import { receiptOfCall } from './receipts.ts';
import { createRuns, type RunLimits, type Runs } from './runs/runs.ts';
import { runStore as openRunStore } from './runs/store.ts';
import { removeSession, sessionService } from './sessions.ts';
import { createInputSubmitter, type InputSubmitter } from './submit.ts';

export interface SessionsOptions {
  database: Database;
  agentId: string;
  name: string;
  dataDir: string;
  workspace: string;
  registry: PluginRegistry;
  defaultModel: string;
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  contextTokens(modelId: string): Promise<number | null>;
  limits: RunLimits & {
    executeWaitMs: number;
    approvalTtlMs: number;
    heartbeatMs: number;
    maxReplayEvents: number;
    unattendedApprovals: 'deny' | 'approve';
  };
  clock: Clock;
  log: Log;
  traces: Traces;
}

export interface Sessions {
  runs: Runs;
  inputs: InputSubmitter;
  store: SessionStore;
  /** The receipt of the run that a call with an Idempotency-Key has accepted; null without one. */
  receiptOf(call: { operationId: string; requestId: string }): ReturnType<typeof receiptOfCall>;
  service(chat: ChatQueue): Service<'sessions'>;
}

// What may wait for a slow reader of the event stream.
const maxBufferBytes = 1024 * 1024;

/** Starts to load the model loop with the `ai` package, while the caller does other things. */
export async function preloadModelLoop(): Promise<void> {
  // `createSessions` imports it again and reports the error.
  await import('./model-loop/ai-package.ts').catch(() => {});
}

/** Reads and writes nothing before `runs.recover()`. */
export async function createSessions(options: SessionsOptions): Promise<Sessions> {
  const { database, agentId, registry, limits, clock } = options;
  const { toModelMessages, ...loop } = await import('./model-loop/ai-package.ts');
  const store = sessionStore(database);
  const runStore = openRunStore(database);
  const events = eventStore(database);
  const eventLog = createEventLog({ database, agentId });
  const approvalStore = openApprovalStore(database);
  const attachments = attachmentStore(database);
  const files = attachmentFiles(options.dataDir);
  const approvals = createApprovals({
    agentId,
    store: approvalStore,
    eventLog,
    clock,
    ttlMs: limits.approvalTtlMs,
    unattended: limits.unattendedApprovals,
  });
  const runs: Runs = createRuns({
    ...options,
    store,
    runStore,
    events,
    eventLog,
    approvals,
    modelLoop: {
      ...loop,
      toModelMessages: (conversation) => toModelMessages(conversation, { attachments, files }),
    },
    hasReplicas: database.engine === 'postgres',
    removeSession: (session) => removeSession({ runs, eventLog, files }, session),
  });
  const { hooks } = registry;
  const inputs = createInputSubmitter({ agentId, runs, eventLog, store, files, hooks, clock });
  const { heartbeatMs, maxReplayEvents, executeWaitMs } = limits;
  return {
    runs,
    inputs,
    store,
    receiptOf: (call) => receiptOfCall(runStore, call),
    service: (chat) =>
      sessionService({
        ...options,
        runs,
        inputs,
        chat,
        store,
        runStore,
        events,
        eventLog,
        approvals,
        approvalStore,
        files,
        executeWaitMs,
        follow: { heartbeatMs, maxReplayEvents, maxBufferBytes },
      }),
  };
}
