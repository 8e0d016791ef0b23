// One-time tokens: secrets that work once, or for a few attempts, with content that only the secret decrypts.
import { tokenDigest } from '../../../kernel/secrets/secret.ts';
import { newSecret, seal, unseal, type SealPurpose, type SecretKind } from './sealed-secrets.ts';
import type {
  OneTimeTokenPurpose,
  OneTimeTokenQueries,
  StoredOneTimeToken,
} from './one-time-tokens-store.ts';

const kinds = {
  oauth_state: { secret: 'state', seal: 'oauth state' },
  confirmation: { secret: 'confirmation', seal: 'login confirmation' },
  registration: { secret: 'verification', seal: 'e-mail code' },
  password_reset: { secret: 'verification', seal: 'e-mail code' },
  login_code: { secret: 'app', seal: 'app code' },
} as const satisfies Record<OneTimeTokenPurpose, { secret: SecretKind; seal: SealPurpose }>;

export interface OneTimeToken<T> {
  attemptDigest: Buffer | null;
  content: T;
}

export interface IssuedOneTimeToken {
  /** The secret. The database holds its digest only. */
  secret: string;
  expiresAt: Date;
}

/** Creates a secret for `issueOneTimeToken`, for a caller that needs it before the token is stored. */
export function newOneTimeSecret(purpose: OneTimeTokenPurpose): string {
  return newSecret(kinds[purpose].secret);
}

/**
 * Stores a token with its sealed content. `maxAttempts` is 1 by default; a new secret is created by default.
 */
export async function issueOneTimeToken(
  store: OneTimeTokenQueries,
  token: {
    purpose: OneTimeTokenPurpose;
    content: unknown;
    ttlSeconds: number;
    maxAttempts?: number;
    attemptDigest?: Buffer;
    secret?: string;
  },
): Promise<IssuedOneTimeToken> {
  const { purpose, ttlSeconds, maxAttempts = 1, attemptDigest = null } = token;
  const secret = token.secret ?? newOneTimeSecret(purpose);
  const sealedContent = seal(secret, kinds[purpose].seal, JSON.stringify(token.content));
  const { expiresAt } = await store.insert({
    digest: tokenDigest(secret),
    purpose,
    attemptDigest,
    sealed: sealedContent,
    maxAttempts,
    ttlSeconds,
  });
  return { secret, expiresAt };
}

/**
 * Deletes the token and returns its content; null when it is unknown or expired. Only one of several
 * concurrent calls gets the content.
 */
export async function consumeOneTimeToken<T>(
  store: OneTimeTokenQueries,
  purpose: OneTimeTokenPurpose,
  secret: string,
): Promise<OneTimeToken<T> | null> {
  const token = await store.consume(tokenDigest(secret), purpose);
  return token && unsealContent(purpose, secret, token);
}

/** Counts one attempt and returns the content; null when no attempt is left. The token stays. */
export async function useOneTimeTokenAttempt<T>(
  store: OneTimeTokenQueries,
  purpose: OneTimeTokenPurpose,
  secret: string,
): Promise<OneTimeToken<T> | null> {
  const token = await store.useAttempt(tokenDigest(secret), purpose);
  return token && unsealContent(purpose, secret, token);
}

// The content needs no validation: `issueOneTimeToken` sealed it, and AES-GCM authenticates it.
function unsealContent<T>(
  purpose: OneTimeTokenPurpose,
  secret: string,
  { attemptDigest, sealed }: StoredOneTimeToken,
): OneTimeToken<T> {
  return { attemptDigest, content: JSON.parse(unseal(secret, kinds[purpose].seal, sealed)) as T };
}
