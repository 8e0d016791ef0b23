// The interface between a slice and the composition root: a name, required settings and handlers.
import type { Operations } from '../contract/gateway/operations.gen.ts';
import type { Handlers } from '../kernel/contract/operation.ts';
import type { Identity } from './identity.ts';

/** An environment variable that a service, a model or a provider declares. */
export interface Requirement {
  key: string;
  description: string;
  /** Whether the service, model or provider cannot work without it. */
  required: boolean;
  /** False for values that may be shown and logged, such as an address. Secret by default. */
  secret?: boolean;
  /** The models that need it; set by the model catalog. */
  models?: readonly string[];
}

/**
 * One slice. `Prefix` is the first part of its operation IDs: a missing or unknown handler does not compile.
 */
export interface Service<Prefix extends string = string> {
  /** The name in paths and in `/health`. */
  name: string;
  /** Display name. */
  title: string;
  env: readonly Requirement[];
  handlers: Handlers<Operations, Prefix, Identity>;
  /** Stops background work. Called once, after the last request. */
  close?(): Promise<void>;
}
