// Where programs that tests start keep their compiled code. Node compiles the sources of a command in a third of a
// second of processor time; the second start of a run finds the result here.
import { join } from 'node:path';

export const compileCache = join(import.meta.dirname, '../../build/compile-cache');
