// What the handlers of the sessions service depend on, and types that they share.
import type { Operations } from '../../contract/agent/operations.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Handler } from '../../kernel/contract/operation.ts';
import type { Identity } from '../identity.ts';
import type { Permissions } from '../permissions/index.ts';
import type { PluginRegistry } from '../plugins/index.ts';
import type { Snapshots } from '../snapshots/index.ts';
import type { Workspaces } from '../workspaces/index.ts';
import type { Approvals } from './approvals/approvals.ts';
import type { ApprovalStore } from './approvals/store.ts';
import type { AttachmentFiles } from './attachments/files.ts';
import type { AttachmentStore } from './attachments/store.ts';
import type { AllSessionsStore } from './event-log/all-sessions-store.ts';
import type { FollowLimits } from './event-log/follow.ts';
import type { EventLog } from './event-log/log.ts';
import type { MessageUpdateStore } from './event-log/message-update-store.ts';
import type { SessionRecord, SessionStore } from './event-log/session-store.ts';
import type { EventStore } from './event-log/store.ts';
import type { ModelLimits } from './model-loop/prompt/model-limits.ts';
import type { OwnWorkspaces } from './own-workspaces.ts';
import type { RenderConversation } from './model-loop/prompt/prompt.ts';
import type { Runs } from './runs/runs.ts';
import type { RunStore } from './runs/store.ts';
import type { InputSubmitter } from './submit.ts';

export interface HandlerOptions {
  agentId: string;
  name: string;
  runs: Runs;
  inputs: InputSubmitter;
  eventLog: EventLog;
  store: SessionStore;
  runStore: RunStore;
  events: EventStore;
  messageUpdates: MessageUpdateStore;
  allSessions: AllSessionsStore;
  /** Whether other processes may write events of this agent. */
  hasReplicas: boolean;
  approvals: Approvals;
  approvalStore: ApprovalStore;
  files: AttachmentFiles;
  attachments: AttachmentStore;
  registry: PluginRegistry;
  permissions: Permissions;
  snapshots: Snapshots;
  workspaces: Workspaces;
  ownWorkspaces: OwnWorkspaces;
  /** The model for inputs and sessions that do not name one. */
  defaultModel: string;
  modelLimits: ModelLimits;
  render: RenderConversation;
  follow: FollowLimits;
  clock: Clock;
  /** Throws 404 when there is no session with this id. */
  requireSession(sessionId: string): Promise<SessionRecord>;
}

/** The handlers of these operations. */
export type SessionHandlers<Id extends keyof Operations> = {
  [Key in Id]: Handler<Operations[Key], Identity>;
};

/**
 * The request id under which an input is stored when its call has an
 * Idempotency-Key; undefined without a key.
 */
export function keyedRequestId(call: {
  headers: { 'idempotency-key'?: string };
  requestId: string;
}): string | undefined {
  return call.headers['idempotency-key'] === undefined ? undefined : call.requestId;
}
