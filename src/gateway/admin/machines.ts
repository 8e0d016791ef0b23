// Machine credentials: what a product's backend shows in place of an administrator's session. Each is good for
// a few named operations and for one Bureau, and for nothing else.
import type { Tx } from '../../kernel/data/database.ts';
import { id } from '../../kernel/ids.ts';
import { Problem } from '../../kernel/problem.ts';
import { token, tokenDigest } from '../../kernel/secrets/secret.ts';
import type { AuditEntry } from '../audit/index.ts';
import { systemOrigin, type Identity } from '../identity.ts';
import type { AdminStore, Machine } from './store.ts';

/** Scope to the operation that it opens. */
const operationOf: Readonly<Record<string, string>> = {
  'tokens.issue': 'accounts.issueToken',
  'bureaus.current': 'bureaus.getCurrentBureau',
};

export interface MachineRequest {
  scopes: readonly string[];
  bureauId: string;
  /** 90 days without it, 365 days at most. */
  ttlSeconds?: number;
}

export interface Machines {
  /** The credential is shown this once. Throws 400 for an unknown scope or too long a lifetime, 404 for an unknown Bureau. */
  create(request: MachineRequest): Promise<Machine & { credential: string }>;
  list(): Promise<Machine[]>;
  /**
   * Revokes the credential and the user tokens that it issued, which `keepTokens` leaves as they are. Throws 404
   * when there is none; without effect on one that is revoked already.
   */
  revoke(
    credentialId: string,
    options?: { keepTokens?: boolean },
  ): Promise<{ credentialId: string; revoked: boolean }>;
}

export interface MachinesNeeds {
  store: AdminStore;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  bureaus: { find(bureauId: string): Promise<object | null> };
  /** The user tokens that machine credentials issue. */
  tokens: { revokeMadeBy(tx: Tx, makerId: string): Promise<number> };
}

const day = 86_400;
const defaultSeconds = 90 * day;
const maximumSeconds = 365 * day;

export function createMachines({ store, audit, changes, bureaus, tokens }: MachinesNeeds): Machines {
  return {
    async create({ scopes, bureauId, ttlSeconds = defaultSeconds }) {
      const unknown = scopes.find((scope) => !Object.hasOwn(operationOf, scope));
      if (scopes.length === 0 || unknown !== undefined) {
        const what =
          unknown === undefined ? 'A machine credential needs a scope' : `There is no scope "${unknown}"`;
        throw new Problem(
          'bad_request',
          'invalid_request',
          `${what}; the scopes are ${Object.keys(operationOf).join(' and ')}.`,
          { param: 'scope' },
        );
      }
      if (!(ttlSeconds >= 1 && ttlSeconds <= maximumSeconds)) {
        throw new Problem('bad_request', 'invalid_request', 'A machine credential lives 365 days at most.', {
          param: 'ttl',
        });
      }
      if (!(await bureaus.find(bureauId)))
        throw new Problem('not_found', 'bureau_not_found', 'There is no such Bureau.', { param: 'bureau' });
      const credential = token('adm');
      const made = {
        credentialId: id('adm'),
        bureauId,
        scopes: [...new Set(scopes)],
        digest: tokenDigest(credential),
        last4: credential.slice(-4),
        ttlSeconds,
      };
      const diff = {
        bureau_id: bureauId,
        scopes: made.scopes,
        last4: made.last4,
        ttl_seconds: made.ttlSeconds,
      };
      const machine = await store.insertMachine(made, (tx) =>
        audit.record(tx, entryOf('admin.token.create', made.credentialId, diff)),
      );
      return { ...machine, credential };
    },
    list: () => store.listMachines(),
    async revoke(credentialId, { keepTokens = false } = {}) {
      const revoked = await store.revokeMachine(credentialId, async (tx) => {
        const tokensRevoked = keepTokens ? 0 : await tokens.revokeMadeBy(tx, credentialId);
        await audit.record(
          tx,
          entryOf('admin.token.revoke', credentialId, { tokens_revoked: tokensRevoked }),
        );
        await changes.bump(tx);
      });
      if (revoked === null)
        throw new Problem('not_found', 'token_not_found', 'There is no such machine credential.');
      return { credentialId, revoked };
    },
  };
}

export function identityOf({
  credentialId,
  bureauId,
  scopes,
}: Machine): Extract<Identity, { kind: 'admin' }> {
  // A scope that is not known any more opens nothing.
  const operations = new Set(scopes.flatMap((scope) => operationOf[scope] ?? []));
  return { kind: 'admin', adminId: credentialId, tokenId: credentialId, operations, bureauId };
}

function entryOf(action: string, credentialId: string, diff?: Record<string, unknown>): AuditEntry {
  return {
    ...systemOrigin,
    action,
    target: { kind: 'machine_credential', id: credentialId },
    outcome: 'ok',
    ...(diff ? { diff } : {}),
  };
}
