// The table of tickets, and the only file that names it. Whether one has expired is judged here, by the
// database's clock.
import type { Database, Sql } from '../../kernel/data/database.ts';

export type TicketPurpose = 'oauth_state' | 'confirmation' | 'registration' | 'password_reset';

export interface StoredTicket {
  attemptDigest: Buffer | null;
  sealed: Buffer;
}

export interface NewTicket extends StoredTicket {
  digest: Buffer;
  purpose: TicketPurpose;
  tries: number;
  ttlSeconds: number;
}

export interface TicketQueries {
  insert(ticket: NewTicket): Promise<{ expiresAt: Date }>;
  /** Takes the ticket away and returns it; of any number at once only one gets it. */
  take(digest: Buffer, purpose: TicketPurpose): Promise<StoredTicket | null>;
  /** Uses up one try and returns the ticket, which stays. */
  tryOnce(digest: Buffer, purpose: TicketPurpose): Promise<StoredTicket | null>;
  /** Forgets some that have expired. */
  forgetOld(): Promise<void>;
}

/** The same on a connection of a transaction, or alone. */
export interface TicketStore extends TicketQueries {
  within(sql: Sql): TicketQueries;
}

export function ticketStore({ sql }: Database): TicketStore {
  return { ...queries(sql), within: queries };
}

function queries(sql: Sql): TicketQueries {
  return {
    async insert({ digest, purpose, attemptDigest, sealed, tries, ttlSeconds }) {
      const [made] = await sql<{ expiresAt: Date }[]>`
        insert into gateway.accounts_tickets (digest, purpose, attempt_digest, sealed, tries_left, expires_at)
        values (${digest}, ${purpose}, ${attemptDigest}, ${sealed}, ${tries},
          gateway.townhall_now() + make_interval(secs => ${ttlSeconds}))
        returning expires_at as "expiresAt"`;
      if (!made) throw new Error('The ticket was not stored.');
      return made;
    },
    async take(digest, purpose) {
      const [taken] = await sql<(StoredTicket & { isLive: boolean })[]>`
        delete from gateway.accounts_tickets where digest = ${digest} and purpose = ${purpose}
        returning attempt_digest as "attemptDigest", sealed, expires_at > gateway.townhall_now() as "isLive"`;
      return taken?.isLive ? taken : null;
    },
    async tryOnce(digest, purpose) {
      const [found] = await sql<StoredTicket[]>`
        update gateway.accounts_tickets set tries_left = tries_left - 1
        where digest = ${digest} and purpose = ${purpose} and tries_left > 0 and expires_at > gateway.townhall_now()
        returning attempt_digest as "attemptDigest", sealed`;
      return found ?? null;
    },
    async forgetOld() {
      await sql`
        delete from gateway.accounts_tickets where digest in (
          select digest from gateway.accounts_tickets where expires_at < gateway.townhall_now()
          order by expires_at limit 100 for update skip locked)`;
    },
  };
}
