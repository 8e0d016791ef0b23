// Secrets that a caller holds, and strings that are sealed: encrypted with a key derived from such a secret.
// The database stores the secret's digest and the sealed string, which is not enough to decrypt the string.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, randomInt } from 'node:crypto';
import { isRandomText, randomText } from '../../../kernel/secrets/secret.ts';

const nonceBytes = 12;
const tagBytes = 16;

/** A string sealed for one purpose cannot be unsealed for another. */
export type SealPurpose =
  | 'login result'
  | 'login memory'
  | 'oauth state'
  | 'login confirmation'
  | 'e-mail code'
  | 'app code';

// The log's redactor recognises secrets by these prefixes.
const prefixes = {
  login: 'lgn_',
  code: 'lgc_',
  state: 'lgs_',
  confirmation: 'lgf_',
  verification: 'lgv_',
  device: 'lgd_',
  app: 'lga_',
} as const;

export type SecretKind = keyof typeof prefixes;

/** A new secret of 256 random bits. The secret of a login is its `login_id`. */
export function newSecret(kind: SecretKind): string {
  return prefixes[kind] + randomText();
}

/** Whether the text matches the format of such a secret. Check it before a database lookup. */
export function isSecret(kind: SecretKind, text: string): boolean {
  return text.startsWith(prefixes[kind]) && isRandomText(text.slice(prefixes[kind].length));
}

/** Encrypts with AES-256-GCM and a key derived from the secret. Returns nonce, ciphertext and tag. */
export function seal(secret: string, purpose: SealPurpose, text: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv('aes-256-gcm', sealingKey(secret, purpose), nonce);
  const ciphertext = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, ciphertext, cipher.getAuthTag()]);
}

/** Throws when the secret or the purpose differs, or when the bytes were changed. */
export function unseal(secret: string, purpose: SealPurpose, sealed: Buffer): string {
  const decipher = createDecipheriv(
    'aes-256-gcm',
    sealingKey(secret, purpose),
    sealed.subarray(0, nonceBytes),
  );
  decipher.setAuthTag(sealed.subarray(-tagBytes));
  return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()]).toString(
    'utf8',
  );
}

// Consonants that are hard to confuse. Without vowels, a code cannot spell a word.
const userCodeLetters = 'BCDFGHJKLMNPQRSTVWXZ';

/** A code for a person to compare on two screens (RFC 8628), such as `WDJB-MJHT`: 20^8 values. */
export function newUserCode(): string {
  const letters = Array.from({ length: 8 }, () => userCodeLetters[randomInt(userCodeLetters.length)]).join(
    '',
  );
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}

// HKDF without a salt: the secret already has 256 random bits. The stored digest is
// a plain SHA-256 of the secret, which is independent of this key.
function sealingKey(secret: string, purpose: SealPurpose): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', `townhall ${purpose}`, 32));
}
