// Puts the room together: stores, the group commit, the bus, the runs. What others need of it is what it returns.
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
import type { ChatQueue } from './execute.ts';
import { createHeads } from './event-log/session-cache.ts';
import { createInputSubmitter, type InputSubmitter } from './submit.ts';
import { createBus } from './event-log/bus.ts';
import { createCommitter } from './event-log/committer.ts';
import { eventStore } from './event-log/store.ts';
import { createRuns, type RunLimits, type Runs } from './runs/runs.ts';
import { forgetSession, sessions } from './sessions.ts';
import { runStore as openRunStore } from './runs/store.ts';
import { sessionStore, type SessionStore } from './event-log/session-store.ts';
import { createTalks } from './event-log/conversation-cache.ts';

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
  traces?: Traces;
}

export interface Sessions {
  runs: Runs;
  inputs: InputSubmitter;
  store: SessionStore;
  service(chat: ChatQueue): Service<'sessions'>;
}

// What may wait for a reader that does not read.
const maxBufferBytes = 1024 * 1024;

/** Begins to load the tool loop, with what it is built on; whoever needs it waits for it. */
export async function preloadModelLoop(): Promise<void> {
  // Whoever needs it hears why it cannot be loaded.
  await import('./model-loop/ai-package.ts').catch(() => {});
}

/** Loads the tool loop meanwhile; nothing is read or written before `runs.recover()`. */
export async function createSessions(needs: SessionsOptions): Promise<Sessions> {
  const { database, agentId, name, registry, defaultModel, limits, clock, log, contextTokens } = needs;
  const loop = await import('./model-loop/ai-package.ts');
  const bus = createBus();
  const store = sessionStore(database);
  const runStore = openRunStore(database);
  const events = eventStore(database);
  const heads = createHeads();
  const talks = createTalks(events);
  const committer = createCommitter(database, (appended, moved) => {
    for (const one of moved) heads.moved(one);
    talks.heard(appended);
    bus.publish(appended);
  });
  const approvalStore = openApprovalStore(database);
  const attachments = attachmentStore(database);
  const files = attachmentFiles(needs.dataDir);
  const approvals = createApprovals({
    agentId,
    store: approvalStore,
    committer,
    bus,
    clock,
    ttlMs: limits.approvalTtlMs,
    unattended: limits.unattendedApprovals,
  });
  const runs: Runs = createRuns({
    store,
    runStore,
    events,
    committer,
    heads,
    talks,
    bus,
    approvals,
    agentId,
    name,
    defaultModel,
    model: needs.model,
    contextTokens,
    loop: {
      runTurn: loop.runTurn,
      summarize: loop.summarize,
      toModelMessages: (talk) => loop.toModelMessages(talk, { attachments, files }),
    },
    registry,
    workspace: needs.workspace,
    limits,
    hasReplicas: database.engine === 'postgres',
    forget: (session) => forgetSession({ runs, committer, heads, talks, bus, files }, session),
    clock,
    log,
    ...(needs.traces === undefined ? {} : { traces: needs.traces }),
  });
  const inputs = createInputSubmitter({ agentId, runs, store, files, hooks: registry.hooks, clock });
  return {
    runs,
    inputs,
    store,
    service: (chat) =>
      sessions({
        agentId,
        name,
        runs,
        inputs,
        chat,
        store,
        runStore,
        events,
        approvals,
        approvalStore,
        files,
        committer,
        heads,
        talks,
        bus,
        registry,
        defaultModel,
        contextTokens,
        executeWaitMs: limits.executeWaitMs,
        follow: { heartbeatMs: limits.heartbeatMs, maxReplayEvents: limits.maxReplayEvents, maxBufferBytes },
        clock,
      }),
  };
}
