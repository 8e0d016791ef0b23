// The owner of a job or of a stored response. For all other callers neither exists.
import type { Identity } from '../../identity.ts';

export interface Owner {
  kind: 'user' | 'admin';
  id: string;
}

/** Throws for a guest: every operation that stores something requires a token. */
export function ownerOf(identity: Identity): Owner {
  switch (identity.kind) {
    case 'user':
      return { kind: 'user', id: identity.userId };
    case 'admin':
      return { kind: 'admin', id: identity.adminId };
    case 'guest':
      throw new Error('A guest cannot own a job or a stored response.');
  }
}

/** Key of an owner of either kind, for fair shares of render threads and for limits per owner. */
export function ownerKey({ kind, id }: Owner): string {
  return `${kind} ${id}`;
}
