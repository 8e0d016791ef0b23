// What both variants of the agent client share: a transport that throws AgentError, under the methods of a container.

import { createServices, createTargetReader, readBaseUrl, type Services } from '../../shared/src/operations.ts';
import { type ConnectionOptions, createTransport } from '../../shared/src/transport.ts';
import { AgentError } from './errors.ts';
import { createClient, createConfig } from './generated/current/client/index.ts';

export interface AgentClientOptions extends ConnectionOptions {}

/** `create` makes the generated container around the client that it is given. */
export function connectAgent<Container extends object>(options: AgentClientOptions, create: (client: never) => Container): Services<Container> {
  const addresses = createClient(createConfig({ baseUrl: readBaseUrl(options.baseUrl) }));
  const transport = createTransport({
    ...options,
    buildUrl: (parts) => addresses.buildUrl(parts),
    fail: (failure) => new AgentError(failure),
  });
  return createServices(create(createTargetReader() as never), transport);
}
