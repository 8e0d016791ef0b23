// The start and the end of each request: it is registered and checked, and logged when its response
// is over.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ActiveSet, ActiveSetEntry } from '../active-set.ts';
import type { Clock } from '../clock.ts';
import { id } from '../ids.ts';
import type { Log } from '../log.ts';
import { accessFields, type NameIdentity } from './access-log.ts';
import type { BodyBudget } from './body/budget.ts';
import { clientAddress, type ConnectionLimits } from './connection-limits.ts';
import type { Drain } from './drain.ts';
import type { Guard } from './guard.ts';
import type { RequestObserver } from './observer.ts';
import type { Proxies } from './proxies.ts';
import { HttpRequest } from './request.ts';
import { refuseAmbiguous, type RequestLimits } from './request-checks.ts';

// A WeakMap entry for each request would cost more than the rest of its admission.
const requestKey = Symbol('request');
type AdmittedMessage = IncomingMessage & { [requestKey]?: HttpRequest };

/** The request that was created for the message; undefined before its admission. */
export function admittedRequest(message: IncomingMessage): HttpRequest | undefined {
  return (message as AdmittedMessage)[requestKey];
}

export interface AdmissionOptions {
  /** Checks every request after the limits of connections and before all other checks. */
  guard?: Guard;
  log: Log;
  clock: Pick<Clock, 'monotonicMs'>;
  /** Proxies whose `X-Forwarded-For` is trusted; without them the socket's peer is the client. */
  proxies?: Proxies;
  observer?: RequestObserver | undefined;
  nameIdentity?: NameIdentity;
  /**
   * The key under which the large bodies of an identity are counted; without it they are counted by address.
   */
  callerOf?: (identity: { kind: string }) => string | null;
}

interface ServerState {
  limits: RequestLimits & { maxBodyBytes: number };
  budget: BodyBudget;
  /** The default deadline of operations. */
  requestMs: number;
  requests: ActiveSet<HttpRequest>;
  connections: ConnectionLimits;
  drain: () => Drain;
}

/** Returns the function that admits a request. It throws the Problem with which a request is refused. */
export function createAdmission(
  { log, clock, proxies, guard, observer, nameIdentity, callerOf }: AdmissionOptions,
  { limits, budget, requestMs, requests, connections, drain }: ServerState,
) {
  function finish(entry: ActiveSetEntry<HttpRequest>): void {
    requests.delete(entry);
    const request = entry.member;
    if (!request.response.writableFinished) {
      request.isClientGone = true;
      request.abort();
    }
    const durationMs = clock.monotonicMs() - request.startedMs;
    observer?.recordEnd(request, durationMs);
    log.info(accessFields(request, durationMs, nameIdentity), 'request');
    drain().responseEnded();
  }

  // Registers the request before the checks, so that a rejection is rendered, logged and counted too.
  return (message: AdmittedMessage, response: ServerResponse): HttpRequest => {
    connections.markUsed(message.socket);
    const request = new HttpRequest(message, response, {
      requestId: id('req'),
      log,
      nowMs: clock.monotonicMs(),
      remoteAddress: clientAddress(message, proxies),
      limits: { maxBytes: limits.maxBodyBytes, deadlineMs: requestMs },
      budget,
      callerOf,
    });
    message[requestKey] = request;
    const entry = requests.add(request);
    response.once('close', () => finish(entry));
    connections.admit(request);
    guard?.(message);
    refuseAmbiguous(message, limits);
    drain().refuseLate();
    return request;
  };
}
