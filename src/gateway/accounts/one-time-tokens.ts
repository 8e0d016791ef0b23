// Tickets: secrets that work once, or for a few tries, each with something that only it opens.
import { newSecret, seal, secretDigest, unseal, type BoxPurpose } from './secret-box.ts';
import type { TicketPurpose, TicketQueries } from './one-time-tokens-store.ts';

const kinds = {
  oauth_state: { secret: 'state', box: 'oauth state' },
  confirmation: { secret: 'confirmation', box: 'login confirmation' },
  registration: { secret: 'verification', box: 'e-mail code' },
  password_reset: { secret: 'verification', box: 'e-mail code' },
} as const satisfies Record<TicketPurpose, { secret: Parameters<typeof newSecret>[0]; box: BoxPurpose }>;

export interface Ticket<T> {
  attemptDigest: Buffer | null;
  content: T;
}

export interface IssuedTicket {
  /** The secret; it is kept nowhere else. */
  secret: string;
  expiresAt: Date;
}

/** A new secret of the kind that `issueTicket` takes, for a caller that must know it before. */
export function newTicketSecret(purpose: TicketPurpose): string {
  return newSecret(kinds[purpose].secret);
}

export async function issueTicket(
  tickets: TicketQueries,
  ticket: {
    purpose: TicketPurpose;
    content: unknown;
    ttlSeconds: number;
    tries?: number;
    attemptDigest?: Buffer;
    secret?: string;
  },
): Promise<IssuedTicket> {
  const { purpose, ttlSeconds, tries = 1, attemptDigest = null } = ticket;
  const secret = ticket.secret ?? newTicketSecret(purpose);
  const sealed = seal(secret, kinds[purpose].box, JSON.stringify(ticket.content));
  const { expiresAt } = await tickets.insert({
    digest: secretDigest(secret),
    purpose,
    attemptDigest,
    sealed,
    tries,
    ttlSeconds,
  });
  return { secret, expiresAt };
}

/** Takes the ticket away; null when there is none, or not any more. Of any number at once only one gets it. */
export async function takeTicket<T>(
  tickets: TicketQueries,
  purpose: TicketPurpose,
  secret: string,
): Promise<Ticket<T> | null> {
  const stored = await tickets.take(secretDigest(secret), purpose);
  return stored && open(purpose, secret, stored);
}

/** Uses up one try of the ticket, which stays; null when it has none left. */
export async function tryTicket<T>(
  tickets: TicketQueries,
  purpose: TicketPurpose,
  secret: string,
): Promise<Ticket<T> | null> {
  const stored = await tickets.tryOnce(secretDigest(secret), purpose);
  return stored && open(purpose, secret, stored);
}

// Whatever is in a box was put there by `issueTicket` of the same purpose; nobody else has the key.
function open<T>(
  purpose: TicketPurpose,
  secret: string,
  stored: { attemptDigest: Buffer | null; sealed: Buffer },
): Ticket<T> {
  return {
    attemptDigest: stored.attemptDigest,
    content: JSON.parse(unseal(secret, kinds[purpose].box, stored.sealed)) as T,
  };
}
