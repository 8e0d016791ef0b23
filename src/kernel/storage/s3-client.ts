// Signed requests to one bucket of an S3 server, with deadlines and bounded retries. Responses are
// streams; the text of an error is read up to a bound.
import { createHash } from 'node:crypto';
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { pipeline, type Readable } from 'node:stream';
import { retry, TimeoutError } from '../async.ts';
import type { Clock } from '../clock.ts';
import { signRequest } from '../secrets/aws-signature.ts';

export interface S3Options {
  /** The address of the server, without a path. */
  endpoint: string;
  region: string;
  bucket: string;
  /** Prepended to every key; empty, or with a slash at its end. */
  prefix: string;
  keyId: string;
  secret: string;
  /** Whether the bucket is the first part of the path, or else the first label of the host. */
  pathStyle: boolean;
}

export interface S3Body {
  size: number;
  /** SHA-256 in hex; the server refuses a body with another digest. */
  digest: string;
  /** Called once per attempt. */
  open(): Uint8Array | Readable;
}

export interface S3Request {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  /** Below the prefix; absent for a request to the bucket itself. */
  key?: string;
  query?: Readonly<Record<string, string>>;
  /** Names in lower case. */
  headers?: Readonly<Record<string, string>>;
  body?: S3Body;
}

export interface S3Client {
  /**
   * Resolves with a response of the status 2xx, whose content the caller must read or destroy.
   * Throws an S3Error for another status and the system's error for a broken connection.
   */
  send(request: S3Request): Promise<IncomingMessage>;
  /** `send`, and the whole content as text. */
  sendForText(request: S3Request): Promise<string>;
}

/** A refusal by the server. */
export class S3Error extends Error {
  override readonly name = 'S3Error';
  readonly status: number;
  /** The server's code, such as `NoSuchBucket`; empty for a response without a body. */
  readonly code: string;

  constructor(status: number, { code, message }: { code: string; message: string }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export interface S3Limits {
  /** Longest silence on a connection; covers connecting, the wait for the response and each of its pieces. */
  idleMs: number;
  attempts: number;
}

// A list has at most 1,000 entries of a few hundred bytes.
const maxTextBytes = 4 * 1024 * 1024;
const defaultLimits: S3Limits = { idleMs: 15_000, attempts: 4 };
const firstRetryMs = 200;
export const emptyBody: S3Body = bodyOf(new Uint8Array());

/** A body that is in memory. */
export function bodyOf(bytes: Uint8Array): S3Body {
  return {
    size: bytes.length,
    digest: createHash('sha256').update(bytes).digest('hex'),
    open: () => bytes,
  };
}

export function s3Client(
  options: S3Options,
  { clock, limits = {} }: { clock: Pick<Clock, 'now' | 'sleep'>; limits?: Partial<S3Limits> },
): S3Client {
  const { idleMs, attempts } = { ...defaultLimits, ...limits };
  const { base, isSecure } = addressOf(options);
  const { keyId: accessKeyId, secret: secretAccessKey, region, prefix } = options;
  // Idle connections do not keep the process alive.
  const agent = isSecure ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });

  function attempt({ method, key, query, headers, body = emptyBody }: S3Request): Promise<IncomingMessage> {
    const url = new URL(key === undefined ? base : `${base}/${prefix}${key}`);
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value);
    const signedHeaders: Record<string, string> = { ...headers, 'x-amz-content-sha256': body.digest };
    const signature = signRequest(
      { method, url: url.href, headers: signedHeaders, body: undefined, bodyDigest: body.digest },
      { accessKeyId, secretAccessKey },
      { region, service: 's3', now: clock.now() },
    );
    const allHeaders: Record<string, string> = { ...signedHeaders, ...signature };
    if (method === 'PUT' || method === 'POST') allHeaders['content-length'] = String(body.size);
    return exchange(url, { method, agent, idleMs, headers: allHeaders }, body);
  }

  async function sendOnce(request: S3Request): Promise<IncomingMessage> {
    const response = await attempt(request);
    const { statusCode: status = 0 } = response;
    if (status >= 200 && status < 300) return response;
    throw new S3Error(status, explain(request, status, await readText(response).catch(() => '')));
  }

  function withRetries<T>(work: () => Promise<T>): Promise<T> {
    return retry(work, {
      clock,
      isRetryable: (error, count) => count < attempts && isTransient(error),
      delayMs: (count) => firstRetryMs * 2 ** (count - 1),
    });
  }

  return {
    send: (request) => withRetries(() => sendOnce(request)),
    sendForText: (request) => withRetries(async () => readText(await sendOnce(request))),
  };
}

/** The address of the bucket, without a slash at its end. */
function addressOf({ endpoint, bucket, pathStyle }: S3Options): { base: string; isSecure: boolean } {
  const { protocol, host } = new URL(endpoint);
  return {
    base: pathStyle ? `${protocol}//${host}/${bucket}` : `${protocol}//${bucket}.${host}`,
    isSecure: protocol === 'https:',
  };
}

interface ExchangeOptions {
  method: string;
  headers: Record<string, string>;
  agent: HttpAgent;
  idleMs: number;
}

function exchange(
  url: URL,
  { idleMs, ...options }: ExchangeOptions,
  { open, size }: S3Body,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const send = url.protocol === 'https:' ? requestHttps : requestHttp;
    let response: IncomingMessage | undefined;
    const outgoing = send(url, { ...options, timeout: idleMs }, (incoming) => {
      response = incoming;
      // A server may refuse an upload before it has read all of it, and then never reads the rest.
      incoming.once('close', () => outgoing.writableFinished || outgoing.destroy());
      resolve(incoming);
    });
    outgoing.on('timeout', () =>
      (response ?? outgoing).destroy(new TimeoutError(`The S3 server was silent for ${idleMs} ms.`)),
    );
    outgoing.on('error', reject);
    const content = size === 0 ? new Uint8Array() : open();
    if (content instanceof Uint8Array) outgoing.end(content);
    else pipeline(content, outgoing, (error) => error && reject(error));
  });
}

async function readText(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > maxTextBytes) throw new Error(`The S3 server sent more than ${maxTextBytes} bytes of text.`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

function explain(
  { method, key }: S3Request,
  status: number,
  text: string,
): { code: string; message: string } {
  const code = elementsOf(text, 'Code')[0] ?? '';
  const detail = (elementsOf(text, 'Message')[0] ?? '').slice(0, 500);
  const target = key === undefined ? 'of the bucket' : `of the key ${key}`;
  const reason = [`${status} ${code}`.trim(), detail].filter((words) => words !== '').join(': ');
  return { code, message: `The S3 server refused ${method} ${target}: ${reason}` };
}

/** The contents of all elements of this name. Enough for S3's answers: such elements have no attributes. */
export function elementsOf(xml: string, name: string): string[] {
  return xml
    .split(`<${name}>`)
    .slice(1)
    .map((rest) => rest.split(`</${name}>`, 1)[0] ?? '');
}

const transientStatuses = new Set([429, 500, 502, 503, 504]);
const transientCodes = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
  'EHOSTUNREACH',
]);

/** Whether the same request may succeed soon. */
export function isTransient(error: unknown): boolean {
  if (error instanceof S3Error) return transientStatuses.has(error.status) || error.code === 'RequestTimeout';
  if (error instanceof TimeoutError) return true;
  return error instanceof Error && transientCodes.has((error as NodeJS.ErrnoException).code ?? '');
}
