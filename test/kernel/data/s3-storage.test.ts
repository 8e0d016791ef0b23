// Storage in a bucket: with a third-party S3 server, and with a server that fails.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/kernel/clock.ts';
import { TimeoutError } from '../../../src/kernel/async.ts';
import type { S3Limits } from '../../../src/kernel/storage/s3-client.ts';
import { requireBucket, s3Settings } from '../../../src/kernel/storage/s3-settings.ts';
import { s3Storage, type S3Storage } from '../../../src/kernel/storage/s3-storage.ts';
import { SettingError } from '../../../src/kernel/settings.ts';
import { listen } from '../../support/local-server.ts';
import { keysUnder, startS3Server, type S3Server } from '../../support/s3-server.ts';

async function* pieces(count: number, bytes: number): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < count; index += 1) yield Buffer.alloc(bytes, index);
}

async function read(storage: S3Storage, key: string): Promise<Buffer | null> {
  const file = await storage.open(key);
  if (file === null) return null;
  const bytes = await buffer(file.content);
  expect(bytes.length).toBe(file.size);
  return bytes;
}

describe('s3Storage', () => {
  let server: S3Server;
  let storage: S3Storage;
  let spoolFolder: string;
  beforeAll(async () => {
    server = await startS3Server();
    spoolFolder = await mkdtemp(join(tmpdir(), 'townhall-spool-'));
    storage = s3Storage({ ...server.options, clock: systemClock, spoolFolder });
  });
  afterAll(async () => {
    await server?.close();
    await rm(spoolFolder, { recursive: true, force: true });
  });

  test('returns contents of any size until removal', async () => {
    const content = Buffer.alloc(300_000, 'abc');
    await storage.put('med_1', content);
    await storage.put('med_2', Buffer.alloc(0));
    expect(await read(storage, 'med_1')).toEqual(content);
    expect(await read(storage, 'med_2')).toEqual(Buffer.alloc(0));
    await storage.remove('med_1');
    await storage.remove('med_1');
    expect(await read(storage, 'med_1')).toBeNull();
  });

  test('stores content of unknown length', async () => {
    await storage.put('film', pieces(40, 200_000));
    const expected = await buffer(pieces(40, 200_000));
    expect((await read(storage, 'film'))?.equals(expected)).toBe(true);
  });

  test('stores nothing when the content fails', async () => {
    const failingContent = async function* () {
      yield Buffer.alloc(100_000);
      throw new Error('The provider hung up.');
    };
    await expect(storage.put('broken', failingContent())).rejects.toThrow('The provider hung up.');
    expect(await storage.open('broken')).toBeNull();
  });

  test('leaves no named file in the spool folder', async () => {
    let namesDuringPut: string[] = ['not read'];
    const content = async function* () {
      yield Buffer.alloc(100_000);
      namesDuringPut = await readdir(spoolFolder);
    };
    await storage.put('film', content());
    expect(namesDuringPut).toEqual([]);
  });

  test('stores keys below the prefix', async () => {
    await storage.put('sessions/a/x.txt', Buffer.from('x'));
    expect(await server.keys()).toContain('city/sessions/a/x.txt');
  });

  test('lists and removes the keys with a prefix', async () => {
    for (const name of ['1', '2', '3']) await storage.put(`many/${name}.txt`, Buffer.from(name));
    const keys = await keysUnder(storage, 'many/');
    expect(keys).toEqual(['many/1.txt', 'many/2.txt', 'many/3.txt']);
    await storage.removeAll([...keys, 'many/unknown']);
    expect(await keysUnder(storage, 'many/')).toEqual([]);
  });

  test.each(['..', '../x', 'a//b', '', '.hidden', 'a/../b', 'a?b', 'a<b', 'a\0b', 'x'.repeat(257)])(
    'refuses the key %j',
    async (key) => {
      await expect(storage.put(key, Buffer.from('x'))).rejects.toThrow('storage key');
      await expect(storage.open(key)).rejects.toThrow('storage key');
      await expect(storage.remove(key)).rejects.toThrow('storage key');
      await expect(storage.removeAll([key])).rejects.toThrow('storage key');
    },
  );

  test.each([
    ['a bucket that does not exist', { bucket: 'no-such-bucket' }, /STORAGE_S3_BUCKET: .*no bucket/],
    ['a wrong secret', { secret: 'CANARY' }, /STORAGE_S3_SECRET .*SignatureDoesNotMatch/],
    ['an unknown key id', { keyId: 'NOBODY' }, /STORAGE_S3_KEY_ID .*InvalidAccessKeyId/],
  ])('names the setting at startup for %s', async (_title, change, message) => {
    const error: unknown = await requireBucket('', {
      ...server.options,
      ...change,
      clock: systemClock,
    }).catch((failure: unknown) => failure);
    expect(error).toBeInstanceOf(SettingError);
    expect((error as Error).message).toMatch(message);
    expect((error as Error).message).not.toContain('CANARY');
  });

  test('reports at startup that the server cannot be reached', async () => {
    const options = { ...server.options, endpoint: 'http://127.0.0.1:1', clock: systemClock };
    const error: unknown = await requireBucket('AGENT_', options).catch((failure: unknown) => failure);
    expect(error).not.toBeInstanceOf(SettingError);
    expect((error as Error).message).toMatch(
      /^The S3 server at http:\/\/127.0.0.1:1 \(AGENT_STORAGE_S3_ENDPOINT\) .*ECONNREFUSED/,
    );
  });
});

describe('s3Storage with a faulty server', () => {
  type Answer = (request: IncomingMessage, response: ServerResponse) => void;
  let server: Server;
  let url: string;
  /** One answer for each request; the last one repeats. */
  let answers: Answer[];
  let requests: IncomingMessage[];
  /** Whether answers come before the content of the request is read. */
  let answersEarly: boolean;
  beforeEach(async () => {
    requests = [];
    answersEarly = false;
    server = createServer((request, response) => {
      requests.push(request);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (answersEarly) return answer?.(request, response);
      request.resume();
      request.once('end', () => answer?.(request, response));
    });
    ({ url } = await listen(server));
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const clock = { ...systemClock, sleep: async () => {} };
  function openStorage(limits: Partial<S3Limits> = {}): S3Storage {
    return s3Storage({
      endpoint: url,
      region: 'eu-central-1',
      bucket: 'bucket',
      prefix: '',
      keyId: 'id',
      secret: 'secret',
      pathStyle: true,
      clock,
      limits,
    });
  }
  const answerWith =
    (status: number, text = '', headers: Record<string, string> = {}): Answer =>
    (_request, response) => {
      response.writeHead(status, headers).end(text);
    };
  const head = answerWith(200, '', { 'content-length': '10' });
  const slowDown = answerWith(503, '<Error><Code>SlowDown</Code><Message>Wait.</Message></Error>');
  const refusal = answerWith(403, '<Error><Code>AccessDenied</Code><Message>No.</Message></Error>');

  /** Sends four of ten bytes, then disconnects. */
  const cutAnswer: Answer = (_request, response) => {
    response.writeHead(200, { 'content-length': '10' });
    response.write('0123', () => response.destroy());
  };

  test('retries with the whole content', async () => {
    answers = [slowDown, slowDown, answerWith(200)];
    await openStorage().put('key', pieces(3, 1_000));
    expect(requests.map(({ headers }) => headers['content-length'])).toEqual(['3000', '3000', '3000']);
  });

  test('retries after a disconnect during an upload', async () => {
    let receivedBytes = 0;
    const hangUp: Answer = (request) => request.once('data', () => request.socket.destroy());
    const accept: Answer = (request, response) => {
      request.on('data', (piece: Buffer) => (receivedBytes += piece.length));
      request.once('end', () => response.writeHead(200).end());
    };
    answersEarly = true;
    answers = [hangUp, accept];
    await openStorage().put('key', pieces(20, 1_000_000));
    expect(receivedBytes).toBe(20_000_000);
  });

  test('stops sending an upload that was refused', async () => {
    answersEarly = true;
    answers = [({ socket }) => socket.write('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n')];
    const content = Buffer.alloc(30_000_000);
    await expect(openStorage().put('key', content)).rejects.toThrow('refused PUT of the key key: 403');
    const [request] = requests;
    const closePromise = new Promise((resolve) => request?.socket.once('close', resolve));
    request?.on('error', () => {}).resume();
    await closePromise;
    expect(request?.socket.bytesRead).toBeLessThan(content.length);
  });

  test('rejects after the last attempt', async () => {
    answers = [slowDown];
    await expect(openStorage({ attempts: 3 }).remove('key')).rejects.toThrow('503 SlowDown: Wait.');
    expect(requests).toHaveLength(3);
  });

  test('does not retry after a refusal', async () => {
    answers = [refusal];
    await expect(openStorage().remove('key')).rejects.toThrow('403 AccessDenied: No.');
    expect(requests).toHaveLength(1);
  });

  test('rejects when the server is silent', async () => {
    answers = [() => {}];
    const put = openStorage({ idleMs: 20, attempts: 2 }).put('key', Buffer.from('x'));
    await expect(put).rejects.toMatchObject({
      code: 'storage_unavailable',
      cause: expect.any(TimeoutError),
    });
    expect(requests).toHaveLength(2);
  });

  test('requests the rest of a truncated content', async () => {
    answers = [head, cutAnswer, answerWith(206, '456789', { 'content-length': '6' })];
    expect(String(await read(openStorage(), 'key'))).toBe('0123456789');
    expect(requests.map(({ headers }) => headers.range)).toEqual([undefined, undefined, 'bytes=4-']);
  });

  test('rejects after many truncations', async () => {
    answers = [head, (_request, response) => response.writeHead(200, { 'content-length': '10' }).destroy()];
    await expect(read(openStorage({ attempts: 4 }), 'key')).rejects.toThrow('socket hang up');
    // One for the length, and four attempts for the content and for each of its three resumptions.
    expect(requests).toHaveLength(17);
  });

  test('requires the length of a content', async () => {
    answers = [answerWith(200)];
    await expect(openStorage().open('key')).rejects.toThrow('length of the key key');
  });

  test('rejects an answer that ignores the range', async () => {
    answers = [head, cutAnswer, answerWith(200, '0123456789')];
    await expect(read(openStorage(), 'key')).rejects.toThrow('ignored the range');
  });

  test('reads a list of several pages', async () => {
    const page = (name: string, rest: string) =>
      answerWith(
        200,
        `<ListBucketResult>
          <Contents><Key>a/${name}</Key><LastModified>2026-11-24T01:02:03.000Z</LastModified></Contents>
          ${rest}
        </ListBucketResult>`,
      );
    answers = [page('1', '<NextContinuationToken>a+/=</NextContinuationToken>'), page('2', '')];
    expect(await keysUnder(openStorage(), 'a/')).toEqual(['a/1', 'a/2']);
    expect(new URL(requests[1]?.url ?? '', 'http://x').searchParams.get('continuation-token')).toBe('a+/=');
  });

  test('disconnects when the reader stops', async () => {
    let closePromise: Promise<unknown> = Promise.resolve();
    const large: Answer = (_request, response) => {
      closePromise = new Promise((resolve) => response.once('close', resolve));
      response.writeHead(200, { 'content-length': '50000000' }).write(Buffer.alloc(1_000_000));
    };
    answers = [answerWith(200, '', { 'content-length': '50000000' }), large];
    const file = await openStorage().open('key');
    expect(requests).toHaveLength(1);
    for await (const _piece of file?.content ?? []) break;
    await closePromise;
    expect(requests).toHaveLength(2);
  });
});

describe('the settings of a bucket', () => {
  const none = {
    s3Bucket: undefined,
    s3Endpoint: undefined,
    s3Region: undefined,
    s3Prefix: undefined,
    s3KeyId: undefined,
    s3Secret: undefined,
    s3PathStyle: undefined,
  };
  const keys = { s3KeyId: 'id', s3Secret: 'secret' };

  test('may be absent', () => {
    expect(s3Settings('', none)).toBeUndefined();
  });

  test("name AWS's server in the region by default", () => {
    expect(s3Settings('', { ...none, ...keys, s3Bucket: 'media', s3Region: 'eu-central-1' })).toMatchObject({
      endpoint: 'https://s3.eu-central-1.amazonaws.com',
      pathStyle: false,
    });
  });

  test('put the bucket of another server into the path', () => {
    const s3Endpoint = 'http://minio:9000';
    expect(s3Settings('', { ...none, ...keys, s3Bucket: 'media', s3Endpoint })).toMatchObject({
      endpoint: s3Endpoint,
      pathStyle: true,
    });
  });

  test('are refused without the bucket', () => {
    expect(() => s3Settings('AGENT_', { ...none, ...keys })).toThrow('AGENT_STORAGE_S3_BUCKET is missing');
  });

  test('are refused without the key', () => {
    expect(() => s3Settings('', { ...none, s3Bucket: 'media' })).toThrow('STORAGE_S3_KEY_ID');
  });
});
