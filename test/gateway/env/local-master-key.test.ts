// The master key that the local edition creates for itself, in a file beside its embedded database.
import { readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { makeDatabase } from '../../support/databases.ts';
import { startAndStop } from './start-and-stop.ts';

test('the local master key is created once for its owner alone', { timeout: 180_000 }, async () => {
  const place = await makeDatabase();
  if (!('path' in place.options)) throw new Error('not embedded');
  const file = join(place.options.path, 'master.key');
  const log = await startAndStop(place, {});
  const text = await readFile(file, 'utf8');
  expect(text).toMatch(/^[A-Za-z0-9+/]{43}=\n$/);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(log).toContain('created a master key');
  expect(log).not.toContain(text.trim());
  await startAndStop(place, {});
  expect(await readFile(file, 'utf8')).toBe(text);
  // A removed key is not created again, since the database is sealed now.
  await rm(file);
  await expect(startAndStop(place, {})).rejects.toThrow('Nothing was changed');
  await expect(stat(file)).rejects.toThrow('ENOENT');
  await place.remove();
});
