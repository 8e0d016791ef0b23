// The error class of all failed calls of the gateway client.

import { ClientError, type Failure, hasMarker, type TransportCode } from '../../shared/src/client-error.ts';
import type { ProblemCode, ProblemType } from './generated/types.gen.ts';

const marker = Symbol.for('townhall.error.GatewayError');

/**
 * A failed call: refused by the gateway or a model's provider behind it, or failed on the
 * connection.
 */
export class GatewayError extends ClientError {
  declare readonly code: ProblemCode | TransportCode | (string & {});
  declare readonly type: ProblemType | 'transport_error' | (string & {});

  constructor(failure: Failure) {
    super('GatewayError', marker, failure);
  }

  /** Works across several copies of this package, where `instanceof` does not. */
  static isInstance(error: unknown): error is GatewayError {
    return hasMarker(error, marker);
  }
}
