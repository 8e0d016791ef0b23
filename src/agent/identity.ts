// The caller of a request. Tokens carry no users and no roles: a caller holds one of
// this agent's tokens or is a guest.

/** A guest, or the holder of one of this agent's tokens. */
export type Identity = { kind: 'guest' } | { kind: 'agent'; agentId: string; tokenId: string };

/** The owner of an Idempotency-Key: the agent itself, so that a key survives a new token. */
export function idempotencyCaller(identity: Identity): string | null {
  return identity.kind === 'agent' ? `agent ${identity.agentId}` : null;
}
