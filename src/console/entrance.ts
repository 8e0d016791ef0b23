// Who is let in: a code that works once and for a short time becomes a cookie. Of both only digests are kept, and both
// live as long as the process.
import { randomText, tokenDigest } from '../kernel/secrets/secret.ts';
import type { Clock } from '../kernel/clock.ts';

export interface EntranceNeeds {
  codeTtlMs: number;
  sessionTtlMs: number;
  clock: Clock;
}

export interface Entrance {
  /** A new code of 256 random bits. The ones before it stay good until their time is over. */
  invite(): string;
  /** What the cookie is to hold, once a code; null for a code that is unknown, spent or too old. */
  redeem(code: string): string | null;
  /** Whether the cookie's text is that of a browser that was let in, and not too long ago. */
  admits(secret: string | undefined): boolean;
}

// More than a person opens; what is beyond pushes the oldest out.
const mostCodes = 32;
const mostSessions = 32;

export function createEntrance({ codeTtlMs, sessionTtlMs, clock }: EntranceNeeds): Entrance {
  /** By the digest's text, so that finding one takes no comparison whose time could tell. */
  const codes = new Map<string, number>();
  const sessions = new Map<string, number>();
  const keyOf = (text: string): string => tokenDigest(text).toString('base64');

  function add(known: Map<string, number>, most: number, ttlMs: number): string {
    const secret = randomText();
    // The oldest come first.
    for (const [key, untilMs] of known) if (untilMs <= clock.monotonicMs() || known.size >= most) known.delete(key);
    known.set(keyOf(secret), clock.monotonicMs() + ttlMs);
    return secret;
  }

  return {
    invite: () => add(codes, mostCodes, codeTtlMs),
    redeem(code) {
      const key = keyOf(code);
      const untilMs = codes.get(key);
      codes.delete(key);
      if (untilMs === undefined || untilMs <= clock.monotonicMs()) return null;
      return add(sessions, mostSessions, sessionTtlMs);
    },
    admits(secret) {
      if (secret === undefined) return false;
      const untilMs = sessions.get(keyOf(secret));
      return untilMs !== undefined && untilMs > clock.monotonicMs();
    },
  };
}

/** The one value of a cookie; undefined when it is absent or sent twice, which no browser of ours does. */
export function readCookie(header: string | undefined, name: string): string | undefined {
  const values = (header ?? '').split(';').flatMap((pair) => {
    const [key = '', ...rest] = pair.split('=');
    return key.trim() === name ? [rest.join('=').trim()] : [];
  });
  return values.length === 1 ? values[0] : undefined;
}
