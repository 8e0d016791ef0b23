// Shared by both variants of the agent client: a transport that throws AgentError, the generated
// methods, and `sessions.follow`, which follows a session over several connections.

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
import { createFollow, type FollowRequest } from './follow.ts';
import { createFollowAll, type FollowAllRequest } from './follow-all.ts';
import type { FollowOptions } from './reconnecting.ts';
import { buildUrl } from './generated/current/client/utils.gen.ts';
import type { SessionEvent } from './generated/current/types.gen.ts';

export interface AgentClientOptions extends ConnectionOptions {}

/** The services of a container, with `sessions.follow` and `followAll` over several connections. */
export type AgentServices<Container extends { sessions: object }> = Omit<Services<Container>, 'sessions'> & {
  readonly sessions: Omit<Services<Container>['sessions'], 'follow' | 'followAll'> & {
    /**
     * Follow a session
     *
     * Yields every event once and in order, over as many connections as needed, until `until:
     * 'idle'` is reached, the signal is aborted or the reader stops. Throws only permanent errors,
     * such as a session that was removed.
     */
    follow(request: FollowRequest, options?: FollowOptions): EventStream<SessionEvent>;
    /**
     * Follow the events of all sessions
     *
     * Yields every event once, and the events of each session in order, over as many connections as
     * needed, until the signal is aborted or the reader stops. Reload a session when its
     * `stream.reset` arrives.
     */
    followAll(request?: FollowAllRequest, options?: FollowOptions): EventStream<SessionEvent>;
  };
};

interface Variant<Container> {
  keyedOperations: ReadonlySet<string>;
  /** Creates the generated container around the given client. */
  create: (client: never) => Container;
}

export function connectAgent<Container extends { sessions: object }>(
  options: AgentClientOptions,
  { keyedOperations, create }: Variant<Container>,
): AgentServices<Container> {
  const baseUrl = readBaseUrl(options.baseUrl);
  const transport = createTransport({
    ...options,
    buildUrl: (parts) => buildUrl({ baseUrl, ...parts }),
    fail: (failure) => new AgentError(failure),
    keyedOperations,
  });
  const container = create(createTargetReader() as never);
  const services = createServices(container, transport);
  const follow = createFollow(transport, targetOf(container.sessions, 'follow'));
  const followAll = createFollowAll(transport, targetOf(container.sessions, 'followAll'));
  return {
    ...services,
    sessions: { ...services.sessions, follow, followAll },
  } as unknown as AgentServices<Container>;
}
