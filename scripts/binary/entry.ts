// What the single executable begins with: the command line, and what `townhall` exports laid where the modules of a
// project or a plugin find it (src/kernel/operator-code.ts).
import * as townhall from '../../src/index.ts';

(globalThis as Record<symbol, unknown>)[Symbol.for('townhall.installation')] = townhall;

// The loader that brings in a project's code is still called experimental, which does not help the user.
process.removeAllListeners('warning');
process.on('warning', (warning) => {
  if (warning.name !== 'ExperimentalWarning') process.stderr.write(`${warning.stack ?? warning.message}\n`);
});

void import('../../src/cli/main.ts');
