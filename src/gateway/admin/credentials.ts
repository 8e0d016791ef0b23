// The administrator's ID and password. A command on this machine sets them up and can reset them.
import type { Tx } from '../../kernel/data/database.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import {
  digestPassword,
  isShortPassword,
  minimumRounds,
  passwordError,
} from '../../kernel/secrets/password.ts';
import type { AuditEntry } from '../audit/index.ts';
import { adminIdError, systemOrigin } from '../identity.ts';
import type { AdminStore } from './store.ts';

/** The result of a setup or reset. */
export interface CredentialsResult {
  adminId: string;
  /** The password is accepted, but shorter than the recommended fifteen characters. */
  isShort: boolean;
}

export interface Credentials {
  /** Whether there is an administrator. */
  exists(): Promise<boolean>;
  /**
   * Creates the first administrator. Throws 400 for an invalid ID or password and
   * 409 when there already is one.
   */
  setup(adminId: string, password: string): Promise<CredentialsResult>;
  /** Replaces the credentials and revokes every session. Throws 400 like `setup`. */
  reset(adminId: string, password: string): Promise<CredentialsResult>;
}

export function createCredentials({
  store,
  log,
  audit,
  changes,
  rounds = minimumRounds,
}: {
  store: Pick<AdminStore, 'exists' | 'insertFirst' | 'replaceAndRevokeSessions'>;
  log: Log;
  audit: { record(tx: Tx, entry: AuditEntry): Promise<void> };
  changes: { bump(tx: Tx): Promise<void> };
  rounds: number | undefined;
}): Credentials {
  const record = (tx: Tx, action: string, adminId: string) =>
    audit.record(tx, {
      ...systemOrigin,
      action,
      target: { kind: 'administrator', id: adminId },
      outcome: 'ok',
    });

  return {
    exists: () => store.exists(),
    async setup(adminId, password) {
      requireAcceptable(adminId, password);
      const digest = await digestPassword(password, rounds);
      const isFirst = await store.insertFirst(adminId, digest, (tx) => record(tx, 'admin.setup', adminId));
      if (!isFirst)
        throw new Problem(
          'conflict',
          'conflict',
          'There is an administrator already; replace the credentials with `townhall admin reset`.',
        );
      log.info({ adminId }, 'created the first administrator');
      return { adminId, isShort: isShortPassword(password) };
    },
    async reset(adminId, password) {
      requireAcceptable(adminId, password);
      const digest = await digestPassword(password, rounds);
      await store.replaceAndRevokeSessions(adminId, digest, async (tx) => {
        await record(tx, 'admin.reset', adminId);
        // Makes every replica end the running calls of the revoked sessions.
        await changes.bump(tx);
      });
      log.info({ adminId }, 'replaced the administrator and revoked every session');
      return { adminId, isShort: isShortPassword(password) };
    },
  };
}

function requireAcceptable(adminId: string, password: string): void {
  const idMessage = adminIdError(adminId);
  if (idMessage !== null) throw invalidCredential('admin_id', idMessage);
  const passwordMessage = passwordError(password, [adminId]);
  if (passwordMessage !== null) throw invalidCredential('password', passwordMessage);
}

function invalidCredential(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', message, { param });
}
