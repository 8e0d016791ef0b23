// One-time login of browsers: a code in an address is exchanged for a key, which the pages send as
// a bearer token. Only digests of both are stored, in memory, so neither outlives the process.
import { randomText, tokenDigest } from '../kernel/secrets/secret.ts';
import type { Clock } from '../kernel/clock.ts';

export interface OneTimeLogin {
  /** A new code of 130 random bits. Earlier codes stay valid until they expire. */
  createCode(): string;
  /** Whether `redeem` would accept the code now. */
  isValidCode(code: string): boolean;
  /** Exchanges the code for a key; null for a code that is unknown, spent or expired. */
  redeem(code: string): string | null;
  /** Whether the key was issued here and has not expired. */
  isValidKey(key: string | undefined): boolean;
}

// 62^22 is above 2^130, and an address with it fits into a line of a terminal.
const codeLength = 22;
// More than a few users need; beyond it the oldest entry is dropped.
const maxCodes = 32;
const maxKeys = 32;

export function createOneTimeLogin({
  codeTtlMs,
  sessionTtlMs,
  clock,
}: {
  codeTtlMs: number;
  sessionTtlMs: number;
  clock: Clock;
}): OneTimeLogin {
  // Digest to expiry. A lookup compares digests only, so its duration reveals nothing about the
  // secret.
  const codes = new Map<string, number>();
  const keys = new Map<string, number>();
  const digestOf = (secret: string): string => tokenDigest(secret).toString('base64');
  const isLive = (secrets: Map<string, number>, secret: string): boolean =>
    (secrets.get(digestOf(secret)) ?? -Infinity) > clock.monotonicMs();

  function issue(secrets: Map<string, number>, secret: string, max: number, ttlMs: number): string {
    // A Map iterates in insertion order, oldest first.
    for (const [digest, expiresMs] of secrets)
      if (expiresMs <= clock.monotonicMs() || secrets.size >= max) secrets.delete(digest);
    secrets.set(digestOf(secret), clock.monotonicMs() + ttlMs);
    return secret;
  }

  return {
    createCode: () => issue(codes, randomText().slice(-codeLength), maxCodes, codeTtlMs),
    isValidCode: (code) => isLive(codes, code),
    redeem(code) {
      const isValid = isLive(codes, code);
      codes.delete(digestOf(code));
      return isValid ? issue(keys, randomText(), maxKeys, sessionTtlMs) : null;
    },
    isValidKey: (key) => key !== undefined && isLive(keys, key),
  };
}

/** The token of an `Authorization: Bearer …` header; undefined for anything else. */
export function readBearer(header: string | undefined): string | undefined {
  return /^Bearer ([0-9A-Za-z]{1,128})$/i.exec(header ?? '')?.[1];
}
