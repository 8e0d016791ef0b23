// SQL for machine credentials. The database's clock decides whether a credential has expired.
import type { Database, Sql, Tx } from '../../kernel/data/database.ts';

/** A machine credential: the credential of a product's backend. */
export interface Machine {
  credentialId: string;
  bureauId: string;
  scopes: string[];
  last4: string;
  createdAt: Date;
  expiresAt: Date;
  revokedAt: Date | null;
  lastUsedAt: Date | null;
}

export interface NewMachine {
  credentialId: string;
  bureauId: string;
  scopes: readonly string[];
  digest: Buffer;
  last4: string;
  ttlSeconds: number;
}

/** Writes the audit entry in the same transaction. */
export type AuditWrite = (tx: Tx) => Promise<void>;

export interface MachineStore {
  insertMachine(machine: NewMachine, writeAudit: AuditWrite): Promise<Machine>;
  findMachine(digest: Buffer): Promise<(Machine & { isUseStale: boolean }) | null>;
  /** The credential while it is valid. A revocation of it waits until the transaction ends. */
  lockLiveMachine(tx: Tx, credentialId: string): Promise<Machine | null>;
  recordMachineUse(credentialId: string): Promise<void>;
  /** All credentials, including revoked ones, oldest first. */
  listMachines(): Promise<Machine[]>;
  /** Returns false when the credential was revoked before, and null when there is none. */
  revokeMachine(credentialId: string, writeAudit: AuditWrite): Promise<boolean | null>;
}

export function machineStore(database: Database): MachineStore {
  const { sql } = database;
  return {
    insertMachine: ({ credentialId, bureauId, scopes, digest, last4, ttlSeconds }, writeAudit) =>
      database.tx(async (tx) => {
        const [machine] = await tx<Machine[]>`
          insert into gateway.admin_machines (credential_id, bureau_id, scopes, digest, last4, expires_at)
          values (${credentialId}, ${bureauId}, ${scopes}::text[], ${digest}, ${last4},
            gateway.townhall_now() + make_interval(secs => ${ttlSeconds}::float8))
          returning ${columns(tx)}`;
        if (!machine) throw new Error('The machine credential was not stored.');
        await writeAudit(tx);
        return machine;
      }),
    async findMachine(digest) {
      const [machine] = await sql<(Machine & { isUseStale: boolean })[]>`
        select ${columns(sql)},
          (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute') as "isUseStale"
        from gateway.admin_machines
        where digest = ${digest} and ${isLive(sql)}`;
      return machine ?? null;
    },
    async lockLiveMachine(tx, credentialId) {
      const [machine] = await tx<Machine[]>`
        select ${columns(tx)} from gateway.admin_machines
        where credential_id = ${credentialId} and ${isLive(tx)} for share`;
      return machine ?? null;
    },
    async recordMachineUse(credentialId) {
      await sql`
        update gateway.admin_machines set last_used_at = gateway.townhall_now()
        where credential_id = ${credentialId}
          and (last_used_at is null or last_used_at <= gateway.townhall_now() - interval '1 minute')`;
    },
    async listMachines() {
      const rows = await sql<Machine[]>`
        select ${columns(sql)} from gateway.admin_machines order by created_at, credential_id`;
      return [...rows];
    },
    revokeMachine: (credentialId, writeAudit) =>
      database.tx(async (tx) => {
        const [machine] = await tx<{ isRevoked: boolean }[]>`
          select revoked_at is not null as "isRevoked" from gateway.admin_machines
          where credential_id = ${credentialId} for update`;
        if (!machine) return null;
        if (machine.isRevoked) return false;
        await tx`
          update gateway.admin_machines set revoked_at = gateway.townhall_now()
          where credential_id = ${credentialId}`;
        await writeAudit(tx);
        return true;
      }),
  };
}

function columns(sql: Sql) {
  return sql`credential_id as "credentialId", bureau_id as "bureauId", scopes, last4, created_at as "createdAt",
    ${expiry(sql)} as "expiresAt", revoked_at as "revokedAt", last_used_at as "lastUsedAt"`;
}

// During a rolling upgrade, a replica of an earlier release may still insert a credential without an expiry:
// it expires after the maximum lifetime.
function expiry(sql: Sql) {
  return sql`coalesce(expires_at, created_at + interval '365 days')`;
}

function isLive(sql: Sql) {
  return sql`revoked_at is null and ${expiry(sql)} > gateway.townhall_now()`;
}
