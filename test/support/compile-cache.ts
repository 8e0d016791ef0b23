// Folder of the compile cache of programs that tests start. Compiling the sources of a command
// takes a third of a second of processor time; the second start of a run uses the cache.
import { join } from 'node:path';

export const compileCache = join(import.meta.dirname, '../../build/compile-cache');
