// The owner of a job or a stored response. To any other caller, the job or response does not exist.
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

/** Identifies an owner of either kind, for the fair use of render threads and for limits per owner. */
export function ownerKey({ kind, id }: Owner): string {
  return `${kind} ${id}`;
}
