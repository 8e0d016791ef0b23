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
      throw new Error('A guest owns nothing.');
  }
}

/** One string for owners of both kinds. */
export function ownerName({ kind, id }: Owner): string {
  return `${kind} ${id}`;
}
