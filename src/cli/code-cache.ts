// Keeps what Node has compiled from one start to the next, in the cache folder of the user, whom alone it belongs to: a
// quarter of the work of a start is reading and compiling the same code again.
import { mkdirSync, statSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { isAbsolute, join } from 'node:path';

/** Never fails: without a folder that is ours alone there is no cache. NODE_DISABLE_COMPILE_CACHE turns it off. */
export function keepCompiledCode(env: Readonly<Record<string, string | undefined>>): void {
  const { XDG_CACHE_HOME: caches, HOME: home } = env;
  const base =
    caches !== undefined && isAbsolute(caches)
      ? caches
      : home !== undefined && isAbsolute(home)
        ? join(home, '.cache')
        : undefined;
  if (base === undefined) return;
  try {
    const folder = join(base, 'townhall', 'code');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { uid, mode } = statSync(folder);
    // Code of whoever may write here would be run by whoever starts the program.
    if (uid !== process.getuid?.() || (mode & 0o022) !== 0) return;
    enableCompileCache(folder);
  } catch {
    // A home that cannot be written to is no reason not to start.
  }
}
