// Creates build/pglite-seed.tgz, the initialized cluster for the first start of the embedded
// database: running initdb there would take seconds and a gigabyte of memory. Rebuilt when PGlite
// or this recipe changes.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { setFlagsFromString } from 'node:v8';

const build = join(import.meta.dirname, '..', 'build');
const seed = join(build, 'pglite-seed.tgz');
const origin = join(build, 'pglite-seed.origin');

const freshOrigin = await readSeedOrigin();
if (existsSync(seed) && (await readFile(origin, 'utf8').catch(() => '')) === freshOrigin) {
  console.log('The seed of the embedded database is up to date.');
} else {
  const archive = await makeSeed();
  await mkdir(build, { recursive: true });
  await writeFile(`${seed}.new`, archive);
  await rename(`${seed}.new`, seed);
  await writeFile(origin, freshOrigin);
  console.log(`Made the seed of the embedded database (${Math.round(archive.length / 1024)} kB).`);
}

async function makeSeed(): Promise<Uint8Array> {
  for (const flag of ['--liftoff-only', '--no-wasm-tier-up', '--no-wasm-dynamic-tiering'])
    setFlagsFromString(flag);
  const { PGlite } = await import('@electric-sql/pglite');
  // WAL segments of 1 MB instead of 16, and no template databases, which only CREATE DATABASE
  // needs: a third of the bytes and files that a first start writes.
  const db = await PGlite.create({ initDbStartParams: ['--wal-segsize=1'] });
  await db.exec('update pg_database set datistemplate = false');
  await db.exec('drop database template0');
  await db.exec('drop database template1');
  await db.exec('checkpoint');
  const archive = await db.dumpDataDir('gzip');
  await db.close();
  return new Uint8Array(await archive.arrayBuffer());
}

async function readSeedOrigin(): Promise<string> {
  const entry = createRequire(import.meta.url).resolve('@electric-sql/pglite');
  const manifest = JSON.parse(await readFile(join(dirname(entry), '..', 'package.json'), 'utf8')) as {
    version: string;
  };
  const recipe = createHash('sha256')
    .update(await readFile(import.meta.filename))
    .digest('hex');
  return `PGlite ${manifest.version}, recipe ${recipe}\n`;
}
