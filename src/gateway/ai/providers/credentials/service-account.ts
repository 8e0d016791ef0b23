// Google service accounts: an assertion that the account's key signs (RFC 7523) is exchanged for a token.
import { createPrivateKey, sign, type KeyObject } from 'node:crypto';
import { asRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import { type TokenRequest, unusableSecret } from './access-tokens.ts';
import { unixSeconds } from '../../../../kernel/clock.ts';

const defaultTokenUrl = 'https://oauth2.googleapis.com/token';
const scope = 'https://www.googleapis.com/auth/cloud-platform';
const lifetimeSeconds = 3600;

/** Throws a Problem for a string that is not the key file of a service account. */
export function serviceAccountRequest(keyFile: string, now: Date): TokenRequest {
  const {
    client_email: email,
    private_key: privateKey,
    private_key_id: keyId,
    token_uri: tokenUri = defaultTokenUrl,
  } = asRecord(parseJsonOrUndefined(keyFile));
  if (typeof email !== 'string' || typeof privateKey !== 'string')
    throw unusableSecret('the key file of the service account needs client_email and private_key');
  if (typeof tokenUri !== 'string' || !/^https?:\/\//.test(tokenUri) || !URL.canParse(tokenUri))
    throw unusableSecret('the token_uri of the service account is not an HTTP URL');
  const issuedAt = unixSeconds(now);
  const header = { alg: 'RS256', typ: 'JWT', ...(typeof keyId === 'string' ? { kid: keyId } : {}) };
  const claims = { iss: email, scope, aud: tokenUri, iat: issuedAt, exp: issuedAt + lifetimeSeconds };
  const content = `${toBase64Url(header)}.${toBase64Url(claims)}`;
  const signature = sign('sha256', Buffer.from(content), rsaKey(privateKey)).toString('base64url');
  return {
    url: tokenUri,
    form: {
      grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
      assertion: `${content}.${signature}`,
    },
  };
}

function rsaKey(pem: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'rsa') return key;
  } catch {
    // The parser's message may quote the key.
  }
  throw unusableSecret('the private_key of the service account is not an RSA key in PEM format');
}

function toBase64Url(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
