// Storage in a bucket of an S3 server. A key is stored by one request, which S3 applies entirely or not
// at all, so a crash leaves no partial content in the bucket.
import { createHash, randomUUID } from 'node:crypto';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Clock } from '../clock.ts';
import { Problem } from '../problem.ts';
import {
  bodyOf,
  elementsOf,
  isTransient,
  s3Client,
  S3Error,
  type S3Body,
  type S3Client,
  type S3Limits,
  type S3Options,
} from './s3-client.ts';
import type { Storage } from './storage.ts';

/** Keys may have folders: `[A-Za-z0-9_.-]`, separated by slashes. */
export interface S3Storage extends Storage {
  /** All keys that begin with `start`, in pages of up to 1,000, with the time at which they were stored. */
  list(start: string): AsyncIterable<{ key: string; storedAt: Date }[]>;
  /** No effect for unknown keys. */
  removeAll(keys: readonly string[]): Promise<void>;
  /**
   * Reads the bucket. Throws an S3Error if the server refuses and the system's error if it cannot be reached.
   */
  check(): Promise<void>;
}

export interface S3StorageOptions extends S3Options {
  clock: Pick<Clock, 'now' | 'sleep'>;
  limits?: Partial<S3Limits>;
  /** Content of unknown length is written here before it is sent. */
  spoolFolder?: string;
}

const keyShape = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:\/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$/;
const maxKeyLength = 256;
// The limit of DeleteObjects.
const deletionBatch = 1_000;
const maxResumptions = 3;
const spoolPieceBytes = 64 * 1024;

export function s3Storage(options: S3StorageOptions): S3Storage {
  const client = s3Client(options, options);
  const { spoolFolder = tmpdir(), prefix } = options;
  return {
    async put(key, content) {
      requireKey(key);
      if (content instanceof Uint8Array) return orUnavailable(putBody(client, key, bodyOf(content)));
      const spool = await spoolContent(content, spoolFolder);
      try {
        await orUnavailable(putBody(client, key, spool.body));
      } finally {
        await spool.close();
      }
    },
    async open(key) {
      const size = await orUnavailable(sizeOf(client, requireKey(key)));
      return size === null ? null : { size, content: readContent(client, { key, size }) };
    },
    async remove(key) {
      await client.sendForText({ method: 'DELETE', key: requireKey(key) });
    },
    list: (start) => listPages(client, { start, prefix }),
    async removeAll(keys) {
      for (let from = 0; from < keys.length; from += deletionBatch) {
        const batch = keys.slice(from, from + deletionBatch).map(requireKey);
        await removeBatch(client, { batch, prefix });
      }
    },
    async check() {
      await client.sendForText({ method: 'GET', query: { 'list-type': '2', 'max-keys': '1', prefix } });
    },
  };
}

/** Rejects with 503 `storage_unavailable` for a transient failure. */
async function orUnavailable<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!isTransient(error)) throw error;
    throw new Problem(
      'unavailable',
      'storage_unavailable',
      'The file storage is unavailable at the moment.',
      { cause: error, headers: { 'retry-after': '5' } },
    );
  }
}

/** Accepts only keys that need no escaping in a URL, in XML and in a signature. */
function requireKey(key: string): string {
  if (key.length <= maxKeyLength && keyShape.test(key)) return key;
  throw new Error('A storage key is too long or contains invalid characters.');
}

async function putBody(client: S3Client, key: string, body: S3Body): Promise<void> {
  const headers = { 'content-type': 'application/octet-stream' };
  await client.sendForText({ method: 'PUT', key, headers, body });
}

/**
 * Writes content of unknown length to a file: S3 needs the length before the content, a retry needs
 * the content again, and memory stays bounded.
 */
async function spoolContent(
  content: AsyncIterable<Uint8Array>,
  folder: string,
): Promise<{ body: S3Body; close(): Promise<void> }> {
  const path = join(folder, `townhall-upload-${randomUUID()}`);
  const file = await open(path, 'wx+', 0o600);
  try {
    // Delete the name at once: the system then frees the file when its handle closes, even after a crash.
    await rm(path);
    const hash = createHash('sha256');
    let size = 0;
    for await (const piece of content) {
      await file.writeFile(piece);
      hash.update(piece);
      size += piece.length;
    }
    const open = () => Readable.from(readPieces(file), { objectMode: false });
    return { body: { size, digest: hash.digest('hex'), open }, close: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * Not `file.createReadStream`: it would close the handle when an attempt fails, and the next attempt needs
 * it.
 */
async function* readPieces(file: FileHandle): AsyncGenerator<Uint8Array> {
  let position = 0;
  for (;;) {
    const { bytesRead, buffer } = await file.read({ buffer: Buffer.allocUnsafe(spoolPieceBytes), position });
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function sizeOf(client: S3Client, key: string): Promise<number | null> {
  try {
    const response = await client.send({ method: 'HEAD', key });
    response.resume();
    const { 'content-length': length } = response.headers;
    if (length === undefined) throw new Error(`The S3 server did not send the length of the key ${key}.`);
    return Number(length);
  } catch (error) {
    if (error instanceof S3Error && error.status === 404) return null;
    throw error;
  }
}

/**
 * Requests the content at the first read. When the connection breaks (S3 also closes it on a slow reader),
 * requests the rest.
 */
async function* readContent(
  client: S3Client,
  { key, size }: { key: string; size: number },
): AsyncGenerator<Uint8Array> {
  let offset = 0;
  let failures = 0;
  while (offset < size) {
    try {
      for await (const piece of await openAt(client, key, offset)) {
        offset += piece.length;
        failures = 0;
        yield piece;
      }
      if (offset < size) throw new TruncatedError();
    } catch (error) {
      failures += 1;
      const isResumable = error instanceof TruncatedError || isTransient(error);
      if (!isResumable || failures > maxResumptions) throw error;
    }
  }
}

class TruncatedError extends Error {
  override readonly name = 'TruncatedError';
  override message = 'The S3 server sent less content than its length.';
}

async function openAt(client: S3Client, key: string, offset: number): Promise<AsyncIterable<Uint8Array>> {
  const headers: Record<string, string> = offset === 0 ? {} : { range: `bytes=${offset}-` };
  const response = await client.send({ method: 'GET', key, headers });
  if (offset === 0 || response.statusCode === 206) return response;
  response.destroy();
  throw new Error('The S3 server ignored the range of a request.');
}

async function* listPages(
  client: S3Client,
  { start, prefix }: { start: string; prefix: string },
): AsyncGenerator<{ key: string; storedAt: Date }[]> {
  let token: string | undefined;
  do {
    const query = { 'list-type': '2', prefix: prefix + start };
    const page = await client.sendForText({
      method: 'GET',
      query: token === undefined ? query : { ...query, 'continuation-token': token },
    });
    yield elementsOf(page, 'Contents').map((entry) => ({
      key: (elementsOf(entry, 'Key')[0] ?? '').slice(prefix.length),
      storedAt: new Date(elementsOf(entry, 'LastModified')[0] ?? ''),
    }));
    token = elementsOf(page, 'NextContinuationToken')[0];
  } while (token !== undefined);
}

async function removeBatch(
  client: S3Client,
  { batch, prefix }: { batch: readonly string[]; prefix: string },
): Promise<void> {
  const objects = batch.map((key) => `<Object><Key>${prefix}${key}</Key></Object>`).join('');
  const bytes = Buffer.from(`<Delete><Quiet>true</Quiet>${objects}</Delete>`);
  // S3 demands this checksum for this operation.
  const headers = {
    'content-type': 'application/xml',
    'content-md5': createHash('md5').update(bytes).digest('base64'),
  };
  const result = await client.sendForText({
    method: 'POST',
    query: { delete: '' },
    headers,
    body: bodyOf(bytes),
  });
  const [failure] = elementsOf(result, 'Error');
  if (failure === undefined) return;
  const [code = ''] = elementsOf(failure, 'Code');
  const [message = ''] = elementsOf(failure, 'Message');
  throw new S3Error(200, { code, message: `The S3 server could not delete a key: ${code} ${message}` });
}
