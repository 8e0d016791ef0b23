// The error class of all failed calls of the agent client.

import { ClientError, type Failure, hasMarker, type TransportCode } from '../../shared/src/client-error.ts';
import type { ProblemCode, ProblemType } from './generated/current/types.gen.ts';

const marker = Symbol.for('townhall.error.AgentError');

/** A failed call: refused by the agent or the gateway behind it, or failed on the connection. */
export class AgentError extends ClientError {
  declare readonly code: ProblemCode | TransportCode | (string & {});
  declare readonly type: ProblemType | 'transport_error' | (string & {});

  constructor(failure: Failure) {
    super('AgentError', marker, failure);
  }

  /** Works across several copies of this package, where `instanceof` does not. */
  static isInstance(error: unknown): error is AgentError {
    return hasMarker(error, marker);
  }
}
