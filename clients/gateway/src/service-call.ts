// Calls of services that a project brings, which the contract knows by their shape alone: a service, an action, and an
// object of members either way.

import type { CallOptions } from '../../shared/src/call-options.ts';
import type { Transport } from '../../shared/src/transport.ts';

export interface ServiceCallOptions extends CallOptions {
  /** The action's own method; `POST` unless told otherwise. A GET sends its members in the query. */
  method?: 'GET' | 'POST' | undefined;
}

export interface ServiceCall {
  /**
   * Call an action of a project's service
   *
   * An action of two parts is written with a slash, `client.call('notes', 'users/clear', {…})`. The answer is whatever
   * the action promises.
   */
  <Result = unknown>(
    service: string,
    action: string,
    input?: Readonly<Record<string, unknown>>,
    options?: ServiceCallOptions,
  ): Promise<Result>;
}

const serviceShape = /^[A-Za-z0-9_-]{1,128}$/;
const actionShape = /^[A-Za-z0-9_-]{1,128}(?:\/[A-Za-z0-9_-]{1,128})?$/;

export function createServiceCall(transport: Transport): ServiceCall {
  return async <Result>(
    service: string,
    action: string,
    input: Readonly<Record<string, unknown>> = {},
    options: ServiceCallOptions = {},
  ): Promise<Result> => {
    const { method = 'POST', ...rest } = options;
    // Anything else would be another path than the one that the caller means.
    if (!serviceShape.test(service) || !actionShape.test(action))
      throw new TypeError(`"${service}" and "${action}" are no ids of a service and an action.`);
    const target = {
      method,
      url: `/v1/${service}/${action}`,
      // The action decides who may call it, so a credential is sent whenever there is one.
      secured: true,
      streams: false,
      bodyType: method === 'POST' ? 'application/json' : undefined,
      serializeBody: undefined,
    };
    return (await transport.call(target, input, rest)) as Result;
  };
}
