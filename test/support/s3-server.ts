// A third-party S3 server in a process of its own. It checks the signature of every request.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { systemClock } from '../../src/kernel/clock.ts';
import type { S3Options } from '../../src/kernel/storage/s3-client.ts';
import { s3Storage, type S3Storage } from '../../src/kernel/storage/s3-storage.ts';

export interface S3Server {
  /** The options of its only bucket. */
  options: S3Options;
  /** The same options as settings in the environment. */
  env(prefix: '' | 'AGENT_'): Record<string, string>;
  /** The keys of the bucket, sorted. */
  keys(): Promise<string[]>;
  close(): Promise<void>;
}

export async function startS3Server(): Promise<S3Server> {
  const folder = await mkdtemp(join(tmpdir(), 'townhall-s3-'));
  const program = createRequire(import.meta.url).resolve('@20minutes/s3rver/lib/cli.js');
  const script = `require(${JSON.stringify(program)}).parseAsync()`;
  const bucket = 'townhall-test';
  const settings = ['--directory', folder, '--address', '127.0.0.1', '--port', '0', '--silent'];
  // The server encrypts its list cursors with DES, which needs the legacy provider. With `-e`, argv has no
  // file name, so the first argument takes its place.
  const words = [
    '--openssl-legacy-provider',
    '-e',
    script,
    '--',
    's3rver',
    ...settings,
    '--configure-bucket',
    bucket,
  ];
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const options: S3Options = {
    endpoint: await listeningAddress(child.stdout),
    region: 'us-east-1',
    bucket,
    prefix: 'city/',
    keyId: 'S3RVER',
    secret: 'S3RVER',
    pathStyle: true,
  };
  return {
    options,
    env: (prefix) => ({
      [`${prefix}STORAGE_S3_BUCKET`]: bucket,
      [`${prefix}STORAGE_S3_ENDPOINT`]: options.endpoint,
      [`${prefix}STORAGE_S3_PREFIX`]: options.prefix,
      [`${prefix}STORAGE_S3_KEY_ID`]: options.keyId,
      [`${prefix}STORAGE_S3_SECRET`]: options.secret,
    }),
    keys: () => keysUnder(s3Storage({ ...options, prefix: '', clock: systemClock }), ''),
    async close() {
      child.kill('SIGKILL');
      await exit;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The keys that begin with the text, sorted. */
export async function keysUnder(storage: S3Storage, start: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const page of storage.list(start)) keys.push(...page.map(({ key }) => key));
  return keys.sort();
}

async function listeningAddress(output: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: output })) {
    const [, address] = /listening on (\S+)/.exec(line) ?? [];
    if (address !== undefined) return `http://${address}`;
  }
  throw new Error('The S3 server exited without listening.');
}
