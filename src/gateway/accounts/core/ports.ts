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
 * Notifies every replica that credentials have changed; each then ends the requests of revoked
 * ones.
 */
export interface ChangesPort {
  /** Counts the change. It must be the last statement of the transaction. */
  bump(tx: Tx): Promise<void>;
  /** The current change counter; null while it is unknown, when nothing can be cached. */
  generation(): number | null;
}

export interface MachinesPort {
  /** The machine credential while it is valid, or null. Its revocation waits for the transaction's end. */
  lockLive(tx: Tx, credentialId: string): Promise<{ expiresAt: Date } | null>;
}

/** Stops of the paid calls of users with repeated usage alarms. The models service sets them. */
export interface PaidCallStops {
  /** When each stop ends; users whose paid calls are not stopped are absent. */
  endsAt(userIds: readonly string[]): Promise<ReadonlyMap<string, Date>>;
  /** False when the user had no alarm. */
  lift(tx: Tx, userId: string): Promise<boolean>;
}

/** Stops nothing; servers without paid calls get it. */
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

/** Reads declared variables as they are now, from the database or the process. */
export interface EnvReader {
  get(key: string): string | undefined;
}
