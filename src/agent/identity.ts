// The caller of a request. Tokens carry no users and no roles: a caller holds one of
// this agent's tokens or is a guest.

/** A guest, or the holder of one of this agent's tokens. */
export type Identity = { kind: 'guest' } | { kind: 'agent'; agentId: string; tokenId: string };

/** The owner of a request's Idempotency-Key; null for a guest, who has no keys. */
export function idempotencyCaller(identity: Identity): string | null {
  return identity.kind === 'agent' ? keyOwner(identity.agentId) : null;
}

/** The agent itself owns its keys, so that they survive a new token. */
export function keyOwner(agentId: string): string {
  return `agent ${agentId}`;
}
