// The agent client for the classic variant (`townhall agent --variant classic`): every operation of
// its contract as `client.<service>.<action>()`, and `client.sessions.follow()`, which reconnects
// by itself.

import { type AgentClientOptions, type AgentServices, connectAgent } from './connect.ts';
import { keyedOperations } from './generated/classic/keyed-operations.gen.ts';
import { AgentOperations } from './generated/classic/sdk.gen.ts';

export type { EventStream, StreamedCall } from '../../shared/src/operations.ts';
export type { CallResponse, PendingCall, PendingPage } from '../../shared/src/pending-call.ts';
export { hasType } from '../../shared/src/type-guards.ts';
export type { CallOptions, StreamCallOptions } from '../../shared/src/call-options.ts';
export { AgentError } from './errors.ts';
export type { FollowRequest } from './follow.ts';
export type { FollowAllRequest } from './follow-all.ts';
export type { FollowOptions } from './reconnecting.ts';
export type * from './generated/classic/error-codes.gen.ts';
export type * from './generated/classic/types.gen.ts';
export type { AgentClientOptions };

export type AgentClient = AgentServices<AgentOperations>;

/** Creates a client. It sends nothing until a method is called, and does not have to be closed. */
export function createAgentClient(options: AgentClientOptions): AgentClient {
  return connectAgent(options, { keyedOperations, create: (client) => new AgentOperations({ client }) });
}
