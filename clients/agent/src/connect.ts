// What both variants of the agent client share: a transport that throws AgentError, under the methods of a container,
// and the one method that a document cannot describe: following a session beyond its first connection.

import type { ConnectionOptions } from '../../shared/src/call-options.ts';
import {
  createServices,
  createTargetReader,
  type EventStream,
  readBaseUrl,
  type Services,
  targetOf,
} from '../../shared/src/operations.ts';
import { createTransport } from '../../shared/src/transport.ts';
import { AgentError } from './errors.ts';
import { createFollow, type FollowOptions, type FollowRequest } from './follow.ts';
import { createClient, createConfig } from './generated/current/client/index.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';

export interface AgentClientOptions extends ConnectionOptions {}

/** The services of a container, with `sessions.follow` as it is meant to be used. */
export type AgentServices<Container extends { sessions: object }> = Omit<Services<Container>, 'sessions'> & {
  readonly sessions: Omit<Services<Container>['sessions'], 'follow'> & {
    /**
     * Follow a session
     *
     * Every event once and in order, over as many connections as it takes, until `until: 'idle'` is reached, the signal
     * is aborted or the reader stops. Throws only what would not be otherwise next time, such as a session that is gone.
     */
    follow(request: FollowRequest, options?: FollowOptions): EventStream<SessionEvent>;
  };
};

/** `create` makes the generated container around the client that it is given. */
export function connectAgent<Container extends { sessions: object }>(
  options: AgentClientOptions,
  create: (client: never) => Container,
): AgentServices<Container> {
  const addresses = createClient(createConfig({ baseUrl: readBaseUrl(options.baseUrl) }));
  const transport = createTransport({
    ...options,
    buildUrl: (parts) => addresses.buildUrl(parts),
    fail: (failure) => new AgentError(failure),
  });
  const container = create(createTargetReader() as never);
  const services = createServices(container, transport);
  const follow = createFollow(transport, targetOf(container.sessions, 'follow'));
  return { ...services, sessions: { ...services.sessions, follow } } as unknown as AgentServices<Container>;
}
