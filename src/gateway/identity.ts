// Who is asking. The bearer credential alone decides it; the slices read it and never make it up.

/** The identity of one request: nobody, a user of one Bureau, or an administrator. */
export type Identity =
  | { kind: 'guest' }
  | { kind: 'user'; userId: string; bureauId: string; tokenId: string }
  | { kind: 'admin'; adminId: string; tokenId: string };
