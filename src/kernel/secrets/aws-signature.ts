// AWS Signature Version 4: canonical request, string to sign, and signing key as in AWS's documentation
// ("Create a signed AWS API request").
import { createHash, createHmac } from 'node:crypto';

export interface AwsKeys {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string | undefined;
}

export interface SignableRequest {
  method: string;
  url: string;
  /** Headers to sign in addition to `host`, `x-amz-date` and `x-amz-security-token`; names in lower case. */
  headers?: Readonly<Record<string, string>>;
  body: string | Uint8Array | undefined;
  /** SHA-256 of the body in hex, for a body that is not in memory; then `body` is not read. */
  bodyDigest?: string;
}

export interface SigningScope {
  region: string;
  service: string;
  now: Date;
}

/** The headers that sign the request; `host` is left to the HTTP client. */
export function signRequest(
  request: SignableRequest,
  { accessKeyId, secretAccessKey, sessionToken }: AwsKeys,
  { region, service, now }: SigningScope,
): Record<string, string> {
  const time = now.toISOString().replace(/[-:]|\.\d{3}/g, '');
  const date = time.slice(0, 8);
  const scope = `${date}/${region}/${service}/aws4_request`;
  const amzHeaders: Record<string, string> = {
    'x-amz-date': time,
    ...(sessionToken === undefined ? {} : { 'x-amz-security-token': sessionToken }),
  };
  // S3 signs the path as it is sent; every other service encodes it once more.
  const encodePath = service === 's3' ? (part: string) => part : encode;
  const { text, signedHeaders } = canonicalRequest(request, { amzHeaders, encodePath });
  const stringToSign = ['AWS4-HMAC-SHA256', time, scope, sha256(text)].join('\n');
  const signingKey = [date, region, service, 'aws4_request'].reduce<string | Buffer>(
    (key, part) => hmac(key, part).digest(),
    `AWS4${secretAccessKey}`,
  );
  const signature = hmac(signingKey, stringToSign).digest('hex');
  return {
    ...amzHeaders,
    authorization: `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`,
  };
}

function canonicalRequest(
  { method, url, headers = {}, body = '', bodyDigest = sha256(body) }: SignableRequest,
  {
    amzHeaders,
    encodePath,
  }: { amzHeaders: Readonly<Record<string, string>>; encodePath: (part: string) => string },
): { text: string; signedHeaders: string } {
  const { host, pathname, searchParams } = new URL(url);
  const headerEntries = Object.entries({ ...headers, host, ...amzHeaders }).toSorted(([a], [b]) =>
    compare(a, b),
  );
  const signedHeaders = headerEntries.map(([name]) => name).join(';');
  const query = [...searchParams]
    .map(([name, value]) => [encode(name), encode(value)] as const)
    .toSorted(([a, aValue], [b, bValue]) => compare(a, b) || compare(aValue, bValue))
    .map(([name, value]) => `${name}=${value}`)
    .join('&');
  const text = [
    method,
    pathname.split('/').map(encodePath).join('/'),
    query,
    ...headerEntries.map(([name, value]) => `${name}:${value.trim().replace(/\s+/g, ' ')}`),
    '',
    signedHeaders,
    bodyDigest,
  ].join('\n');
  return { text, signedHeaders };
}

/** Compares UTF-16 units, which is enough: header names and encoded parameters are ASCII. */
function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** Percent-encodes everything but the unreserved characters of RFC 3986. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function sha256(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

function hmac(key: string | Buffer, text: string) {
  return createHmac('sha256', key).update(text);
}
