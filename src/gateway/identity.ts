// Who is asking. The bearer credential alone decides it; the slices read it and never make it up.

/** The identity of one request: nobody, a user of one Bureau, or an administrator. */
export type Identity =
  | { kind: 'guest' }
  | {
      kind: 'user';
      userId: string;
      bureauId: string;
      tokenId: string;
      /** The only models that the token is good for; without it, whatever its user may call. */
      models?: readonly string[];
    }
  | {
      kind: 'admin';
      adminId: string;
      tokenId: string;
      /** Of a machine credential: the only operations that it is good for. The contract refuses all others. */
      operations?: ReadonlySet<string>;
      /** Of a machine credential: the only Bureau that it may act for. */
      bureauId?: string;
    };

/** Why the ID of an administrator is refused, as a sentence, or null when it is accepted. */
export function adminIdFault(adminId: string): string | null {
  return /^[A-Za-z0-9._@-]{1,64}$/.test(adminId)
    ? null
    : 'An administrator ID is 1 to 64 letters, digits and `.`, `_`, `@`, `-`.';
}

/** Where a change came from, for the audit log. */
export interface Origin {
  actor: { kind: 'guest' | 'user' | 'admin' | 'system'; id: string | null; tokenId: string | null };
  address: string | null;
  requestId: string | null;
}

/** The ids by which the log names who asked. */
export function nameIdentity(identity: Identity): Record<string, string> {
  if (identity.kind === 'user')
    return { identityId: identity.userId, bureauId: identity.bureauId, tokenId: identity.tokenId };
  if (identity.kind === 'admin') return { identityId: identity.adminId, tokenId: identity.tokenId };
  return {};
}

/** The origin of what a call does. */
export function auditOf(call: { identity: Identity; remoteAddress: string; requestId: string }): Origin {
  return { actor: actorOf(call.identity), address: call.remoteAddress, requestId: call.requestId };
}

/** The origin of what a command or the server itself does. */
export const ownDoing: Origin = {
  actor: { kind: 'system', id: null, tokenId: null },
  address: null,
  requestId: null,
};

function actorOf(identity: Identity): Origin['actor'] {
  if (identity.kind === 'user') return { kind: 'user', id: identity.userId, tokenId: identity.tokenId };
  if (identity.kind === 'admin') return { kind: 'admin', id: identity.adminId, tokenId: identity.tokenId };
  return { kind: 'guest', id: null, tokenId: null };
}
