// Calls of a project's own services. The contract defines only their form: a service, an action,
// and an object of members both ways.

import type { CallOptions } from '../../shared/src/call-options.ts';
import { type CallResponse, createPendingCall, type PendingCall } from '../../shared/src/pending-call.ts';
import type { Transport } from '../../shared/src/transport.ts';

export interface ServiceCallOptions extends CallOptions {
  /** The action's method, `POST` by default. A GET sends its members in the query. */
  method?: 'GET' | 'POST' | undefined;
}

export interface ServiceCall {
  /**
   * Call an action of a project's service
   *
   * An action of two parts is written with a slash, `client.call('notes', 'users/clear', {…})`. The
   * type of the answer is up to the action.
   */
  <Result = unknown>(
    service: string,
    action: string,
    input?: Readonly<Record<string, unknown>>,
    options?: ServiceCallOptions,
  ): PendingCall<Result>;
}

const serviceShape = /^[A-Za-z0-9_-]{1,128}$/;
const actionShape = /^[A-Za-z0-9_-]{1,128}(?:\/[A-Za-z0-9_-]{1,128})?$/;

export function createServiceCall(transport: Transport): ServiceCall {
  return <Result>(
    service: string,
    action: string,
    input: Readonly<Record<string, unknown>> = {},
    options: ServiceCallOptions = {},
  ): PendingCall<Result> => {
    const { method = 'POST', ...rest } = options;
    // Any other name would change the path of the request.
    if (!serviceShape.test(service) || !actionShape.test(action)) {
      const error = new TypeError(`"${service}" and "${action}" are not ids of a service and an action.`);
      return createPendingCall(Promise.reject<CallResponse<Result>>(error));
    }
    const target = {
      method,
      url: `/v1/${service}/${action}`,
      // The action's identities decide who may call it, so the credential is always sent.
      secured: true,
      streams: false,
      bodyType: method === 'POST' ? 'application/json' : undefined,
      serializeBody: undefined,
    };
    return transport.call(target, input, rest) as PendingCall<Result>;
  };
}
