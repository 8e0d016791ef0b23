// Constructs the sessions service: stores, event log, runs, routes.
import type { LanguageModelV3 } from '@ai-sdk/provider';
import type { Clock } from '../../kernel/clock.ts';
import type { Database } from '../../kernel/data/database.ts';
import type { S3Options } from '../../kernel/storage/s3-client.ts';
import { s3Storage } from '../../kernel/storage/s3-storage.ts';
import type { Log } from '../../kernel/log.ts';
import type { Traces } from '../../kernel/telemetry/traces.ts';
import type { ModelDescription } from '../gateway.ts';
import type { Permissions } from '../permissions/index.ts';
import type { PluginRegistry } from '../plugins/index.ts';
import type { Snapshots } from '../snapshots/index.ts';
import type { Service } from '../service.ts';
import type { Workspaces } from '../workspaces/index.ts';
import { createApprovals } from './approvals/approvals.ts';
import { approvalStore as openApprovalStore } from './approvals/store.ts';
import { bucketAttachments } from './attachments/bucket-files.ts';
import { attachmentFiles } from './attachments/files.ts';
import { attachmentStore } from './attachments/store.ts';
import { allSessionsStore } from './event-log/all-sessions-store.ts';
import { foldSessionsAtRest } from './event-log/fold.ts';
import { createEventLog } from './event-log/log.ts';
import { messageUpdateStore } from './event-log/message-update-store.ts';
import { segmentsOf, sessionStore } from './event-log/session-store.ts';
import { eventStore } from './event-log/store.ts';
import type { Chat } from './chat.ts';
import { createModelLimits } from './model-loop/prompt/model-limits.ts';
import { createPromptRenderer } from './model-loop/prompt/prompt.ts';
import { findReceipt } from './receipts.ts';
import { createOwnWorkspaces } from './own-workspaces.ts';
import { createRuns, type RunLimits, type Runs } from './runs/runs.ts';
import { sessionNotFound } from './runs/problems.ts';
import { runStore as openRunStore } from './runs/store.ts';
import { removeSession, sessionService } from './sessions.ts';
import { createInputSubmitter, type InputSubmitter } from './submit.ts';

export interface SessionsOptions {
  database: Database;
  agentId: string;
  name: string;
  dataDir: string;
  /** Where attachments are stored; undefined when they are in the data folder. */
  bucket: S3Options | undefined;
  workspaces: Workspaces;
  registry: PluginRegistry;
  permissions: Permissions;
  snapshots: Snapshots;
  defaultModel: string;
  model(modelId: string, settings?: { reasoningEffort?: string }): Promise<LanguageModelV3>;
  describeModel(modelId: string): Promise<ModelDescription>;
  limits: RunLimits & {
    executeWaitMs: number;
    approvalTtlMs: number;
    heartbeatMs: number;
    maxReplayEvents: number;
    unattendedApprovals: 'deny' | 'approve';
    maxWorkspaces: number;
  };
  clock: Clock;
  log: Log;
  traces: Traces;
}

export interface Sessions {
  runs: Runs;
  inputs: InputSubmitter;
  /** The internal key of a session. Throws 404 when there is no session with this id. */
  keyOf(sessionId: string): Promise<string>;
  /** The receipt of the run that a call with an Idempotency-Key has accepted; null when it accepted none. */
  receiptOf(call: { operationId: string; requestId: string }): ReturnType<typeof findReceipt>;
  /** The output of a tool call by the seq of its event; undefined when the session has none. */
  readOutput(sessionId: string, seq: number): Promise<unknown>;
  service(chat: Chat): Service<'sessions'>;
}

// Limit of the events that are buffered for one slow reader of a stream.
const maxBufferBytes = 1024 * 1024;

/** Reads and writes nothing before `runs.recover()`. */
export function createSessions(options: SessionsOptions): Sessions {
  const { agentId, registry, limits, clock } = options;
  const stores = openStores(options);
  const { store, runStore, events, eventLog, files, attachments, hasReplicas } = stores;
  const modelLimits = createModelLimits(options.describeModel);
  const render = createPromptRenderer({ attachments, files });
  const approvals = createApprovals({
    agentId,
    store: stores.approvalStore,
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
    modelLimits,
    render,
    hasReplicas,
    removeSession: (session) => removeSession({ ...options, runs, eventLog, files }, session),
    foldSessions: (signal) => foldSessionsAtRest({ database: options.database, agentId, clock }, signal),
    sweepWorkspaces: () => options.workspaces.sweep((keys) => store.existingKeys(keys)),
  });
  const { hooks } = registry;
  const inputs = createInputSubmitter({ agentId, runs, eventLog, store, files, hooks, clock });
  const { heartbeatMs, maxReplayEvents, maxWorkspaces, executeWaitMs } = limits;
  const ownWorkspaces = createOwnWorkspaces({ ...options, store, maxWorkspaces });
  const follow = { heartbeatMs, maxReplayEvents, maxBufferBytes };
  const services = { runs, inputs, approvals, modelLimits, render, ownWorkspaces, follow, executeWaitMs };
  return {
    runs,
    inputs,
    async readOutput(sessionId, seq) {
      const session = await store.session(agentId, { id: sessionId });
      return session && events.toolOutput(segmentsOf(session), seq);
    },
    async keyOf(sessionId) {
      const session = await store.session(agentId, { id: sessionId });
      if (!session) throw sessionNotFound();
      return session.key;
    },
    receiptOf: (call) => findReceipt(runStore, call),
    service: (chat) => sessionService({ ...options, ...stores, ...services, chat }),
  };
}

function openStores({ database, agentId, dataDir, bucket, clock }: SessionsOptions) {
  return {
    store: sessionStore(database),
    runStore: openRunStore(database),
    events: eventStore(database),
    eventLog: createEventLog({ database, agentId }),
    messageUpdates: messageUpdateStore(database),
    allSessions: allSessionsStore(database),
    approvalStore: openApprovalStore(database),
    attachments: attachmentStore(database),
    files:
      bucket === undefined ? attachmentFiles(dataDir) : bucketAttachments(s3Storage({ ...bucket, clock })),
    hasReplicas: database.engine === 'postgres',
  };
}
