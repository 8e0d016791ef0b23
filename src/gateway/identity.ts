// The identity of a request. The bearer token alone decides it; slices only read identities.

/** A guest, a user of one Bureau, or an administrator. */
export type Identity =
  | { kind: 'guest' }
  | {
      kind: 'user';
      userId: string;
      bureauId: string;
      tokenId: string;
      /** The only models that the token may call; without it, all models of its user. */
      models?: readonly string[];
    }
  | {
      kind: 'admin';
      adminId: string;
      tokenId: string;
      /** Machine credentials only: the operations that it may call. The contract refuses all others. */
      operations?: ReadonlySet<string>;
      /** Machine credentials only: the Bureau that it may act for. */
      bureauId?: string;
    };

/** The kind of identity that each security scheme of the contract proves. */
export const identityOfScheme: Readonly<Record<string, Identity['kind']>> = {
  userToken: 'user',
  xApiKey: 'user',
  apiKey: 'user',
  xGoogApiKey: 'user',
  adminSession: 'admin',
  machineCredential: 'admin',
};

/** A sentence about what is wrong with an administrator ID; null when it is valid. */
export function adminIdError(adminId: string): string | null {
  return /^[A-Za-z0-9._@-]{1,64}$/.test(adminId)
    ? null
    : 'An administrator ID is 1 to 64 letters, digits and `.`, `_`, `@`, `-`.';
}

/** The author and the address of a change, for the audit log. */
export interface Origin {
  actor: { kind: 'guest' | 'user' | 'admin' | 'system'; id: string | null; tokenId: string | null };
  address: string | null;
  requestId: string | null;
}

/** IDs that identify the caller in the request log. Never a credential. */
export function identityLogFields(identity: Identity): Record<string, string> {
  if (identity.kind === 'user')
    return { identityId: identity.userId, bureauId: identity.bureauId, tokenId: identity.tokenId };
  if (identity.kind === 'admin') return { identityId: identity.adminId, tokenId: identity.tokenId };
  return {};
}

/** The origin of changes made by a call. */
export function originOf(call: { identity: Identity; remoteAddress: string; requestId: string }): Origin {
  return { actor: actorOf(call.identity), address: call.remoteAddress, requestId: call.requestId };
}

/** The origin of changes made by a command or by the server itself. */
export const systemOrigin: Origin = {
  actor: { kind: 'system', id: null, tokenId: null },
  address: null,
  requestId: null,
};

function actorOf(identity: Identity): Origin['actor'] {
  if (identity.kind === 'user') return { kind: 'user', id: identity.userId, tokenId: identity.tokenId };
  if (identity.kind === 'admin') return { kind: 'admin', id: identity.adminId, tokenId: identity.tokenId };
  return { kind: 'guest', id: null, tokenId: null };
}

/** The owner of an Idempotency-Key: the user or administrator, so that a key survives a new token. */
export function idempotencyCaller(identity: Identity): string | null {
  if (identity.kind === 'user') return `user ${identity.userId}`;
  return identity.kind === 'admin' ? `admin ${identity.adminId}` : null;
}
