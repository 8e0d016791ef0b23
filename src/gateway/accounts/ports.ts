// What the parts of the accounts share: the type of their handlers, and what they need of other slices.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { Tx } from '../../kernel/data/database.ts';
import type { Handlers } from '../../kernel/contract/operation.ts';
import type { AuditEntry } from '../audit/index.ts';
import type { Identity } from '../identity.ts';

/** A part takes its own out of these; all parts together are the slice. */
export type AccountsHandlers = Handlers<Operations, 'accounts', Identity>;

/** Where changes are recorded, in their own transaction. */
export interface AuditPort {
  record(tx: Tx, entry: AuditEntry): Promise<void>;
}

/** Tells every replica that a credential may be worth nothing any more, so that what runs for it ends too. */
export interface ChangesPort {
  /** The last step of the transaction. */
  bump(tx: Tx): Promise<void>;
  /** The number under which what is read now stays good; null while nothing may be kept. */
  generation(): number | null;
}

/** The machine credentials, whose tokens do not outlive them. */
export interface MachinesPort {
  /** The credential while it is good, or null; its revocation waits until the transaction ends. */
  lockLive(tx: Tx, credentialId: string): Promise<{ expiresAt: Date } | null>;
}

/** What users and API keys have of the ledger, from the transaction on that makes them. */
export interface CreditsPort {
  openAccount(
    tx: Tx,
    user: { userId: string; bureauId: string; startingCredits: bigint | null },
  ): Promise<void>;
  openKey(tx: Tx, key: { tokenId: string; userId: string; cap: bigint | null }): Promise<void>;
  keys(tokenIds: readonly string[]): Promise<{ tokenId: string; cap: bigint | null; spent: bigint }[]>;
}

/** Declared keys as they are now: the database's, or the process's. */
export interface EnvReader {
  get(key: string): string | undefined;
}
