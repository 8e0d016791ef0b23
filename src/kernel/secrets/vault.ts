// Envelope encryption of secrets at rest: AES-256-GCM under a random key per value, which is wrapped by
// a master key that is never in the database. A sealed value opens only in the context it was sealed
// for (table, key, version); one that does not open is an error, never an empty or an old value.
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';

/**
 * The row of a sealed value, as additional authenticated data: a row cannot be moved or rolled
 * back.
 */
export interface SealContext {
  table: string;
  key: string;
  /** The version, which each write of the row increments. */
  version: number;
}

/** A master key in memory. `kid` is a keyed hash of it, which reveals nothing about the key. */
export interface MasterKey {
  readonly kid: string;
  readonly bytes: Buffer;
}

/** Why a value cannot be opened: its master key is unknown, or it is damaged or in another row. */
export class SealError extends Error {
  override readonly name = 'SealError';
  readonly reason: 'unknown_key' | 'damaged';

  constructor(reason: SealError['reason'], message: string) {
    super(message);
    this.reason = reason;
  }
}

export interface Vault {
  /** The key to seal new values with; the other keys open older values. */
  readonly primaryKid: string;
  has(kid: string): boolean;
  /** Returns `v1.kid.wrappedDEK.nonce.ciphertext.tag`. Throws a SealError for an unknown `kid`. */
  seal(kid: string, context: SealContext, value: string): string;
  /** Throws a SealError. */
  open(context: SealContext, sealed: string): string;
  /** Equal for equal values under one primary key; reveals nothing else. */
  fingerprint(value: string): string;
  /**
   * Derives a key for one purpose from each master key, the primary's first, so that older
   * signatures verify during a rotation.
   */
  derive(purpose: string): Buffer[];
}

const cipherName = 'aes-256-gcm';
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
const format = 'v1';

/** Parses 32 bytes of base64, of either alphabet. Null when the text is anything else. */
export function parseMasterKey(text: string): MasterKey | null {
  const base64 = text.trim();
  if (!/^[A-Za-z0-9+/_-]{43}=?$/.test(base64)) return null;
  const bytes = Buffer.from(base64, 'base64');
  return bytes.length === keyBytes ? { kid: kidOf(bytes), bytes } : null;
}

/** A new key as the text that `parseMasterKey` reads. */
export function newMasterKey(): string {
  return randomBytes(keyBytes).toString('base64');
}

/** The id of the master key of a sealed text. Throws a SealError when the text has another format. */
export function keyIdOf(sealed: string): string {
  return parseSealed(sealed).kid;
}

export function createVault(primaryKey: MasterKey, otherKeys: readonly MasterKey[] = []): Vault {
  const keys = new Map([...otherKeys, primaryKey].map((key) => [key.kid, key.bytes]));
  // A short plain hash of a weak secret could be guessed from the audit log; a keyed one cannot.
  const fingerprintKey = Buffer.from(
    hkdfSync('sha256', primaryKey.bytes, '', 'townhall fingerprint', keyBytes),
  );

  function masterKey(kid: string): Buffer {
    const key = keys.get(kid);
    if (key === undefined) throw new SealError('unknown_key', `The master key ${kid} is not configured.`);
    return key;
  }

  return {
    primaryKid: primaryKey.kid,
    has: (kid) => keys.has(kid),
    seal: (kid, context, value) => sealValue({ kid, bytes: masterKey(kid) }, context, value),
    open(context, sealed) {
      const parts = parseSealed(sealed);
      return openValue({ kid: parts.kid, bytes: masterKey(parts.kid) }, context, parts);
    },
    derive: (purpose) =>
      [primaryKey, ...otherKeys].map(({ bytes }) =>
        Buffer.from(hkdfSync('sha256', bytes, '', `townhall ${purpose}`, keyBytes)),
      ),
    fingerprint: (value) =>
      `fp_${createHmac('sha256', fingerprintKey).update(value, 'utf8').digest('hex').slice(0, 16)}`,
  };
}

function sealValue(master: MasterKey, context: SealContext, value: string): string {
  const additionalData = additionalDataOf(context, master.kid);
  const dataKey = randomBytes(keyBytes);
  const wrappedKey = encrypt(master.bytes, additionalData, dataKey);
  const { nonce, text, tag } = encrypt(dataKey, additionalData, Buffer.from(value, 'utf8'));
  dataKey.fill(0);
  const parts = [Buffer.concat([wrappedKey.nonce, wrappedKey.text, wrappedKey.tag]), nonce, text, tag];
  return [format, master.kid, ...parts.map((part) => part.toString('base64url'))].join('.');
}

function openValue(master: MasterKey, context: SealContext, { wrappedKey, ...sealed }: SealedParts): string {
  const additionalData = additionalDataOf(context, master.kid);
  try {
    const dataKey = decrypt(master.bytes, additionalData, {
      nonce: wrappedKey.subarray(0, nonceBytes),
      text: wrappedKey.subarray(nonceBytes, -tagBytes),
      tag: wrappedKey.subarray(-tagBytes),
    });
    const value = decrypt(dataKey, additionalData, sealed).toString('utf8');
    dataKey.fill(0);
    return value;
  } catch {
    // OpenSSL's message contains nothing more, and the caller knows the row.
    throw damagedError();
  }
}

interface Encrypted {
  nonce: Buffer;
  text: Buffer;
  tag: Buffer;
}

function encrypt(key: Buffer, additionalData: Buffer, plain: Buffer): Encrypted {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(cipherName, key, nonce, { authTagLength: tagBytes }).setAAD(additionalData);
  const text = Buffer.concat([cipher.update(plain), cipher.final()]);
  return { nonce, text, tag: cipher.getAuthTag() };
}

function decrypt(key: Buffer, additionalData: Buffer, { nonce, text, tag }: Encrypted): Buffer {
  const decipher = createDecipheriv(cipherName, key, nonce, { authTagLength: tagBytes })
    .setAAD(additionalData)
    .setAuthTag(tag);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}

function additionalDataOf({ table, key, version }: SealContext, kid: string): Buffer {
  return Buffer.from([table, key, version, kid].join('|'), 'utf8');
}

function kidOf(key: Buffer): string {
  return createHmac('sha256', key).update('townhall master key', 'utf8').digest('hex').slice(0, 12);
}

interface SealedParts extends Encrypted {
  kid: string;
  /** The value's own key under the master key: nonce, text and tag. */
  wrappedKey: Buffer;
}

function parseSealed(sealed: string): SealedParts {
  const [version, kid = '', ...encodedParts] = sealed.split('.');
  const [wrappedKey, nonce, text, tag] = encodedParts.map(strictBase64);
  if (version !== format || encodedParts.length !== 4 || !wrappedKey || !nonce || !text || !tag)
    throw damagedError();
  const hasLengths =
    wrappedKey.length === nonceBytes + keyBytes + tagBytes &&
    nonce.length === nonceBytes &&
    tag.length === tagBytes;
  if (!hasLengths) throw damagedError();
  return { kid, wrappedKey, nonce, text, tag };
}

// Node ignores characters outside of base64url and unused bits, but a changed character must be refused.
function strictBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : undefined;
}

function damagedError(): SealError {
  return new SealError('damaged', 'A sealed value is damaged, or was sealed for another row.');
}
