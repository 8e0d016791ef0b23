// Secrets that callers hold, and boxes that only such a secret opens. Only a secret's digest is stored; what goes
// with it is stored sealed under a key made from it. So nothing in the database opens a box: the one key is
// with the caller to whom the secret was given.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, randomInt } from 'node:crypto';
import { randomText, tokenDigest } from '../../kernel/secrets/secret.ts';

const nonceBytes = 12;
const tagBytes = 16;

/** What a box is for; a box of one purpose does not open as another. */
export type BoxPurpose =
  | 'login result'
  | 'login memory'
  | 'oauth state'
  | 'login confirmation'
  | 'e-mail code';

// Each kind of secret has a prefix of its own, by which the log knows it and hides it.
const prefixes = {
  login: 'lgn_',
  code: 'lgc_',
  state: 'lgs_',
  confirmation: 'lgf_',
  verification: 'lgv_',
} as const;

/** A new secret of 256 random bits, as hard to guess as a token; the one of a login is its `login_id`. */
export function newSecret(kind: keyof typeof prefixes): string {
  return prefixes[kind] + randomText();
}

/** Whether the text can be a secret of the kind; anything else need not be looked up. */
export function isSecret(kind: keyof typeof prefixes, text: string): boolean {
  return text.startsWith(prefixes[kind]) && /^[0-9A-Za-z]{43}$/.test(text.slice(prefixes[kind].length));
}

/** What is stored of a secret. */
export function secretDigest(secret: string): Buffer {
  return tokenDigest(secret);
}

/** The text as it may be stored beside the secret's digest. */
export function seal(secret: string, purpose: BoxPurpose, text: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv('aes-256-gcm', sealingKey(secret, purpose), nonce);
  const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, sealed, cipher.getAuthTag()]);
}

/** Throws when the box is another secret's, has another purpose, or was tampered with. */
export function unseal(secret: string, purpose: BoxPurpose, sealed: Buffer): string {
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

// Letters that are hard to mistake for each other and form no words.
const userCodeLetters = 'BCDFGHJKLMNPQRSTVWXZ';

/** A code for a person to compare on two screens, such as `WDJB-MJHT`. */
export function newUserCode(): string {
  const letters = Array.from({ length: 8 }, () => userCodeLetters[randomInt(userCodeLetters.length)]).join(
    '',
  );
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}

/** A code for a person to copy out of an e-mail: eight digits. */
export function newDigitCode(): string {
  return String(randomInt(100_000_000)).padStart(8, '0');
}

// The secret is 256 random bits already, so a salt would add nothing. The digest in the database is a plain
// SHA-256 of it, which says nothing about this key.
function sealingKey(secret: string, purpose: BoxPurpose): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', `townhall ${purpose}`, 32));
}
