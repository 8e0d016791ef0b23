// Turns on Node's compile cache in the user's cache folder: compiling takes a quarter of a start.
import { mkdirSync, statSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { isAbsolute, join } from 'node:path';

/** Never throws: without a private folder there is no cache. NODE_DISABLE_COMPILE_CACHE turns it off. */
export function enableCodeCache(env: Readonly<Record<string, string | undefined>>): void {
  const cacheHome = cacheHomeOf(env);
  if (cacheHome === undefined) return;
  try {
    const folder = join(cacheHome, 'townhall', 'code');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { uid, mode } = statSync(folder);
    // Node executes what is in the cache, so no other user may be able to write there.
    if (uid !== process.getuid?.() || (mode & 0o022) !== 0) return;
    enableCompileCache(folder);
  } catch {
    // A read-only home folder must not prevent the start.
  }
}

function cacheHomeOf({
  XDG_CACHE_HOME: cacheHome,
  HOME: home,
}: Readonly<Record<string, string | undefined>>): string | undefined {
  if (cacheHome !== undefined && isAbsolute(cacheHome)) return cacheHome;
  return home !== undefined && isAbsolute(home) ? join(home, '.cache') : undefined;
}
