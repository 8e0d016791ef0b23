// The secret of a login attempt. Only its digest is stored, and the token that the attempt gave is stored
// sealed under a key made from it. So the result can be read twice, and yet nothing in the database opens it:
// the one key is with the caller who started the attempt.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { randomText, tokenDigest } from '../../kernel/secret.ts';

const nonceBytes = 12;
const tagBytes = 16;

/** A new `login_id`: 256 random bits, as hard to guess as a token. */
export function newLoginId(): string {
  return `lgn_${randomText()}`;
}

/** What is stored of a `login_id`. */
export function loginDigest(loginId: string): Buffer {
  return tokenDigest(loginId);
}

/** The token as it may be stored beside its attempt. */
export function sealToken(loginId: string, token: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv('aes-256-gcm', sealingKey(loginId), nonce);
  const sealed = Buffer.concat([cipher.update(token, 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, sealed, cipher.getAuthTag()]);
}

/** Throws when the seal is another attempt's or was tampered with. */
export function openToken(loginId: string, sealed: Buffer): string {
  const decipher = createDecipheriv('aes-256-gcm', sealingKey(loginId), sealed.subarray(0, nonceBytes));
  decipher.setAuthTag(sealed.subarray(-tagBytes));
  return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()]).toString('utf8');
}

// The login_id is 256 random bits already, so a salt would add nothing. The digest in the database is a plain
// SHA-256 of it, which says nothing about this key.
function sealingKey(loginId: string): Buffer {
  return Buffer.from(hkdfSync('sha256', loginId, '', 'townhall login result', 32));
}
