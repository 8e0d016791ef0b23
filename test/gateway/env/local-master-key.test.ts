// The master key that a gateway with an embedded database creates in the folder of that database.
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { makeDatabase, type DatabasePlace } from '../../support/databases.ts';
import { startAndStop } from './start-and-stop.ts';

// Starts several gateways one after the other on a busy machine.
vi.setConfig({ testTimeout: 180_000 });

let place: DatabasePlace;
let file: string;
beforeEach(async () => {
  place = await makeDatabase();
  if (!('path' in place.options)) throw new Error('These tests need the embedded engine.');
  file = join(place.options.path, 'master.key');
});
afterEach(() => place?.remove());

test('the first start creates a key file that only its owner can read', async () => {
  const log = await startAndStop(place, {});
  const text = await readFile(file, 'utf8');
  expect(text).toMatch(/^[A-Za-z0-9+/]{43}=\n$/);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(log).toContain('created a master key');
  expect(log).not.toContain(text.trim());
});

test('a later start uses the same key', async () => {
  await startAndStop(place, {});
  const text = await readFile(file, 'utf8');
  await startAndStop(place, {});
  expect(await readFile(file, 'utf8')).toBe(text);
});

test('a start without the removed key fails and creates no other key', async () => {
  await startAndStop(place, {});
  await rm(file);
  // The values in the database are encrypted with the removed key.
  await expect(startAndStop(place, {})).rejects.toThrow('Nothing was changed');
  await expect(stat(file)).rejects.toThrow('ENOENT');
});

test('a damaged key stops the start with the advice to restore it', async () => {
  await startAndStop(place, {});
  await writeFile(file, 'damaged\n');
  const message = await startAndStop(place, {}).then(
    () => 'it started',
    (error: unknown) => String(error),
  );
  expect(message).toContain('Restore it from your copy');
  expect(message).not.toContain('openssl');
  expect(await readFile(file, 'utf8')).toBe('damaged\n');
});
