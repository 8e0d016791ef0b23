// Who is asking the agent. Its tokens carry no users and no roles: a caller holds one of this agent's or is a guest.

/** The identity of one request: nobody, or the holder of a token of this very agent. */
export type Identity = { kind: 'guest' } | { kind: 'agent'; agentId: string; tokenId: string };
