// Machine credentials: a product's backend uses one instead of an administrator's session. Each is limited to
// a few named operations and to one Bureau.
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { createToken, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { AuditEntry } from '../audit/index.ts';
import { systemOrigin, type Identity } from '../identity.ts';
import type { Machine, MachineStore } from './machines-store.ts';

/** The operations that each scope allows, as the contract declares them. */
export type ScopeOperations = Readonly<Record<string, readonly string[]>>;

export interface MachineRequest {
  scopes: readonly string[];
  bureauId: string;
  /** 90 days by default, 365 days at most. */
  ttlSeconds?: number;
}

export interface Machines {
  /**
   * Creates a credential, which cannot be read again. Throws 400 for an unknown
   * scope or a lifetime above 365 days, 404 for an unknown Bureau.
   */
  create(request: MachineRequest): Promise<Machine & { credential: string }>;
  list(): Promise<Machine[]>;
  /**
   * Revokes the credential and, unless `keepTokens`, the user tokens that it issued.
   * Throws 404 for an unknown credential; has no effect on a revoked one.
   */
  revoke(
    credentialId: string,
    options?: { keepTokens?: boolean },
  ): Promise<{ credentialId: string; revoked: boolean }>;
}

const daySeconds = 86_400;
const defaultTtlSeconds = 90 * daySeconds;
const maxTtlSeconds = 365 * daySeconds;

export function createMachines({
  store,
  audit,
  changes,
  bureaus,
  tokens,
  scopeOperations,
}: {
  store: MachineStore;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  bureaus: { find(bureauId: string): Promise<object | null> };
  /** The user tokens that machine credentials issue. */
  tokens: { revokeCreatedBy(tx: Tx, credentialId: string): Promise<number> };
  scopeOperations: ScopeOperations;
}): Machines {
  return {
    async create({ scopes, bureauId, ttlSeconds = defaultTtlSeconds }) {
      requireScopes(scopes, scopeOperations);
      if (!(ttlSeconds >= 1 && ttlSeconds <= maxTtlSeconds))
        throw new Problem(
          'bad_request',
          'invalid_request',
          'The lifetime of a machine credential must be between 1 second and 365 days.',
          { param: 'ttl' },
        );
      if (!(await bureaus.find(bureauId)))
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau' });
      const credential = createToken('adm');
      const facts = { scopes: [...new Set(scopes)], last4: credential.slice(-4) };
      const credentialId = id('adm');
      const diff = { bureau_id: bureauId, ...facts, ttl_seconds: ttlSeconds };
      const machine = await store.insertMachine(
        { credentialId, bureauId, digest: tokenDigest(credential), ttlSeconds, ...facts },
        (tx) => audit.record(tx, auditEntry('admin.token.create', credentialId, diff)),
      );
      return { ...machine, credential };
    },
    list: () => store.listMachines(),
    async revoke(credentialId, { keepTokens = false } = {}) {
      const isRevoked = await store.revokeMachine(credentialId, async (tx) => {
        const tokensRevoked = keepTokens ? 0 : await tokens.revokeCreatedBy(tx, credentialId);
        await audit.record(
          tx,
          auditEntry('admin.token.revoke', credentialId, { tokens_revoked: tokensRevoked }),
        );
        await changes.bump(tx);
      });
      if (isRevoked === null)
        throw new Problem('not_found', 'token_not_found', 'There is no such machine credential.');
      return { credentialId, revoked: isRevoked };
    },
  };
}

/** The identity of a request with a machine credential. A scope of a later release allows nothing here. */
export function identityOf(
  { credentialId, bureauId, scopes }: Machine,
  scopeOperations: ScopeOperations,
): Extract<Identity, { kind: 'admin' }> {
  const operations = new Set(scopes.flatMap((scope) => scopeOperations[scope] ?? []));
  return { kind: 'admin', adminId: credentialId, tokenId: credentialId, operations, bureauId };
}

function requireScopes(scopes: readonly string[], scopeOperations: ScopeOperations): void {
  const unknownScope = scopes.find((scope) => !Object.hasOwn(scopeOperations, scope));
  if (scopes.length > 0 && unknownScope === undefined) return;
  const reason =
    unknownScope === undefined ? 'A machine credential needs a scope' : `There is no scope "${unknownScope}"`;
  const message = `${reason}; the scopes are ${Object.keys(scopeOperations).join(' and ')}.`;
  throw new Problem('bad_request', 'invalid_request', message, { param: 'scope' });
}

function auditEntry(action: string, credentialId: string, diff: Record<string, unknown>): AuditEntry {
  return {
    ...systemOrigin,
    action,
    target: { kind: 'machine_credential', id: credentialId },
    outcome: 'ok',
    diff,
  };
}
