// Writes users with a token directly into the tables of a gateway, without a login.
import { createHash } from 'node:crypto';
import { id } from '../../../src/kernel/ids.ts';
import type { Sql } from '../../../src/kernel/data/database.ts';
import { createToken } from '../../../src/kernel/secrets/secret.ts';

export interface Person {
  userId: string;
  userToken: string;
  tokenId: string;
}

export async function makeUser(
  sql: Sql,
  bureauId: string,
  state: { isExpired?: boolean; isRevoked?: boolean } = {},
): Promise<Person> {
  const userId = id('usr');
  const tokenId = id('tok');
  const userToken = createToken('usr');
  const digest = createHash('sha256').update(userToken).digest();
  await sql`insert into gateway.accounts_users (user_id, bureau_id) values (${userId}, ${bureauId})`;
  await sql`
    insert into gateway.accounts_tokens (token_id, user_id, kind, digest, last4, expires_at, revoked_at)
    values (${tokenId}, ${userId}, 'user', ${digest}, ${userToken.slice(-4)},
      now() + make_interval(hours => ${state.isExpired ? -1 : 1}), ${state.isRevoked ? sql`now()` : null})`;
  return { userId, userToken, tokenId };
}

/** Revokes a token directly in the table, so that no replica is notified. */
export async function revoke(sql: Sql, tokenId: string): Promise<void> {
  await sql`update gateway.accounts_tokens set revoked_at = now() where token_id = ${tokenId}`;
}
