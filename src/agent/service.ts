// The interface of the agent's modules for the composition root: a name and its handlers. Both
// variants of the contract share these operations, so the handlers are typed once.
import type { Operations } from '../contract/agent/operations.gen.ts';
import type { Handlers } from '../kernel/contract/operation.ts';
import type { Identity } from './identity.ts';

/** `Prefix` is the first part of its operation ids; a missing or unknown handler does not compile. */
export interface Service<Prefix extends string> {
  name: string;
  handlers: Handlers<Operations, Prefix, Identity>;
}
