// Ed25519 signatures of catalog documents (RFC 8032). A signature is detached: a file beside the
// document with 64 bytes in base64, over the exact bytes of the document. `openssl pkeyutl -rawin`
// makes and checks the same signatures.
import { createPublicKey, generateKeyPairSync, sign, verify, type KeyObject } from 'node:crypto';

// The bytes before a raw Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const publicKeyPrefix = Buffer.from('302a300506032b6570032100', 'hex');
const signatureBytes = 64;

/** The public key as text, also for a private key: 32 bytes in base64. */
export function publicKeyText(key: KeyObject): string {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const { x } = publicKey.export({ format: 'jwk' });
  return Buffer.from(x ?? '', 'base64url').toString('base64');
}

/** Parses a key of MODELS_CATALOG_KEYS, whose length was checked when the settings were read. */
export function parsePublicKey(text: string): KeyObject {
  const bytes = Buffer.from(text, 'base64');
  return createPublicKey({ key: Buffer.concat([publicKeyPrefix, bytes]), format: 'der', type: 'spki' });
}

/** A new private key in PEM (PKCS #8). */
export function createPrivateKeyPem(): { pem: string; publicKey: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return {
    pem: privateKey.export({ format: 'pem', type: 'pkcs8' }) as string,
    publicKey: publicKeyText(publicKey),
  };
}

export function signDocument(document: Uint8Array, privateKey: KeyObject): string {
  return sign(null, document, privateKey).toString('base64');
}

/** Throws unless one of the keys has signed the document. */
export function requireSignature(
  document: Uint8Array,
  signatureText: string,
  keys: readonly KeyObject[],
): void {
  const text = signatureText.trim();
  const signature = Buffer.from(text, 'base64');
  if (signature.length !== signatureBytes || signature.toString('base64') !== text)
    throw new Error('The signature file has no Ed25519 signature: 64 bytes in base64. Nothing was changed.');
  if (!keys.some((key) => verify(null, document, key, signature)))
    throw new Error(
      'The signature is not by one of the public keys, or the document was changed after it was signed. Nothing was changed.',
    );
}
