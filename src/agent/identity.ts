// The caller of a request. Tokens carry no users and no roles: a caller holds one of this agent's tokens or is a guest.

/** Of one request: a guest, or the holder of a token of this agent. */
export type Identity = { kind: 'guest' } | { kind: 'agent'; agentId: string; tokenId: string };
