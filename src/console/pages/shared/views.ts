// Results of the console's own operations, and the arguments of a plugin call.
import type { Approval, ManagedPluginState, PluginSummary, RunStatus, ServiceState } from '@townhall/agent';

/** Which of its two contracts the agent serves. */
export type Variant = 'current' | 'classic';

/** The data of every page; the pages poll it. */
export interface Overview {
  agent: AgentView;
  /** Pending approvals of at most fifty sessions, the oldest approval first. */
  approvals: (Approval & { sessionTitle: string | null })[];
  services: ServiceState[];
}

/**
 * `unreachable`: refuses connections or answers with an error; `silent`: accepts connections but does not
 * answer; `refused`: does not accept the token.
 */
export type AgentView =
  | { state: 'connected'; url: string; name: string; status: string; variant: Variant }
  | { state: 'unreachable' | 'silent' | 'refused'; url: string; message: string };

/** A plugin for display; only the current variant has `managed`. */
export type PluginView = PluginSummary & { managed: ManagedPluginState | null };

/** The state of a run, without its output. */
export interface RunView {
  runId: string;
  status: RunStatus;
  reason: string | null;
  startedAt: string | null;
}

export interface PluginCall {
  plugin: string;
  action: string;
  payload: Record<string, unknown>;
}
