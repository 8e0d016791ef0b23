// Machine credentials act for one Bureau alone. What names another Bureau is refused before a handler runs; what
// belongs to another one is found here, and is as if it did not exist.
import type { Identity } from '../identity.ts';

export type AdminIdentity = Extract<Identity, { kind: 'admin' }>;

/** What the handlers of an administrator take of their call. */
export interface AdminCall {
  operationId: string;
  identity: AdminIdentity;
  remoteAddress: string;
  requestId: string;
}

/** Whether the credential acts for the Bureau. */
export function mayRule({ bureauId: own }: AdminIdentity, bureauId: string): boolean {
  return own === undefined || own === bureauId;
}

/** The Bureau that a list is cut down to. */
export function bureauFilter(
  { bureauId: own }: AdminIdentity,
  asked: string | undefined,
): string | undefined {
  return own ?? asked;
}
