// What every slice of the gateway is to the composition root: a name, what it needs, and its handlers.
import type { Operations } from '../contract/gateway/operations.gen.ts';
import type { Handlers } from '../kernel/contract/operation.ts';
import type { Identity } from './identity.ts';

/** An environment variable that a service, a model or a provider declares. */
export interface Requirement {
  key: string;
  description: string;
  /** Whether its owner cannot work without it. */
  required: boolean;
  /** False where the value may be shown and logged, such as an address; a value is a secret otherwise. */
  secret?: boolean;
  /** The models that need it, where the owner is the model catalog. */
  models?: readonly string[];
}

/** One slice. `Prefix` is the first part of its operation ids, so a missing or an unknown handler does not compile. */
export interface Service<Prefix extends string = string> {
  /** The name in paths and in `/health`. */
  name: string;
  /** The name for people. */
  title: string;
  env: readonly Requirement[];
  handlers: Handlers<Operations, Prefix, Identity>;
  /** Ends what the slice started; called once, after the last request. */
  close?(): Promise<void>;
}
