// What the single executable begins with: the command line, and what `townhall` exports laid where the modules of a
// project or a plugin find it (src/kernel/operator-code.ts).
import * as townhall from '../../src/index.ts';

(globalThis as Record<symbol, unknown>)[Symbol.for('townhall.installation')] = townhall;

void import('../../src/cli/main.ts');
