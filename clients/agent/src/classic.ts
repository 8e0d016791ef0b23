// The agent client for the classic variant (`townhall agent --variant classic`): every operation of its contract as `client.<service>.<action>()`,
// and `client.sessions.follow()`, which joins again by itself.

import { type AgentClientOptions, type AgentServices, connectAgent } from './connect.ts';
import { AgentOperations } from './generated/classic/sdk.gen.ts';

export type { EventStream } from '../../shared/src/operations.ts';
export type { CallOptions, StreamCallOptions } from '../../shared/src/call-options.ts';
export { AgentError } from './errors.ts';
export type { FollowOptions, FollowRequest } from './follow.ts';
export type * from './generated/classic/error-codes.gen.ts';
export type * from './generated/classic/types.gen.ts';
export type { AgentClientOptions };

export type AgentClient = AgentServices<AgentOperations>;

/** Makes a client; nothing is sent until a method is called, and nothing needs to be closed. */
export function createAgentClient(options: AgentClientOptions): AgentClient {
  return connectAgent(options, (client) => new AgentOperations({ client }));
}
