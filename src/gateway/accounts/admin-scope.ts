// The scope of an administrator's credential. A machine credential is limited to one Bureau: the contract
// layer refuses requests that name another Bureau, and the handlers answer 404 for another Bureau's objects.
import type { Identity } from '../identity.ts';

export type AdminIdentity = Extract<Identity, { kind: 'admin' }>;

/** The members of a call that the handlers of administrators' operations use. */
export interface AdminCall {
  operationId: string;
  identity: AdminIdentity;
  remoteAddress: string;
  requestId: string;
}

export function canAccessBureau(identity: AdminIdentity, bureauId: string): boolean {
  return identity.bureauId === undefined || identity.bureauId === bureauId;
}

/** The Bureau that a list is limited to: the credential's own, or the requested one. */
export function bureauFilter(identity: AdminIdentity, requestedId: string | undefined): string | undefined {
  return identity.bureauId ?? requestedId;
}
