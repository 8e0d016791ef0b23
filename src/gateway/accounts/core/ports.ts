// The type of the slice's handlers, and the ports through which it uses other slices.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import type { Handlers } from '../../../kernel/contract/operation.ts';
import type { AuditEntry } from '../../audit/index.ts';
import type { Bureau } from '../../bureaus/index.ts';
import type { Identity } from '../../identity.ts';

/** All handlers of the slice. Each file implements a `Pick` of them. */
export type AccountsHandlers = Handlers<Operations, 'accounts', Identity>;

/** Throws 404 `bureau_not_found`, or 403 for a Bureau that is paused or archived. */
export type RequireActiveBureau = (bureauId: string) => Promise<Bureau>;

/** Writes an audit entry in the transaction of the change. */
export interface AuditPort {
  record(tx: Tx, entry: AuditEntry): Promise<void>;
}

/**
 * Notifies every replica that credentials have changed, so that each ends the running requests of
 * revoked credentials.
 */
export interface ChangesPort {
  /** Counts the change. Call it last in the transaction: it locks a shared row until the commit. */
  bump(tx: Tx): Promise<void>;
  /** The current change counter; null while it is unknown. Nothing can be cached then. */
  generation(): number | null;
}

export interface MachinesPort {
  /** The machine credential while it is valid, or null. Its revocation waits until the transaction ends. */
  lockLive(tx: Tx, credentialId: string): Promise<{ expiresAt: Date } | null>;
}

/** Stops of the paid calls of users with repeated usage alarms. The models service sets them. */
export interface PaidCallStops {
  /** When each stop ends; users whose paid calls are not stopped are absent. */
  endsAt(userIds: readonly string[]): Promise<ReadonlyMap<string, Date>>;
  /** Lifts the user's stop. Returns false when the user had no alarm. */
  lift(tx: Tx, userId: string): Promise<boolean>;
}

/** For servers without paid calls: no user has a stop. */
export const noStops: PaidCallStops = { endsAt: async () => new Map(), lift: async () => false };

/** Opens the ledger accounts of users and API keys, in the transaction that creates them. */
export interface CreditsPort {
  openAccount(
    tx: Tx,
    user: { userId: string; bureauId: string; startingCredits: bigint | null },
  ): Promise<void>;
  openKey(tx: Tx, key: { tokenId: string; userId: string; cap: bigint | null }): Promise<void>;
  keys(tokenIds: readonly string[]): Promise<{ tokenId: string; cap: bigint | null; spent: bigint }[]>;
}

/** Reads the current values of declared variables, from the database or the process's environment. */
export interface EnvReader {
  get(key: string): string | undefined;
}
