// Entry point of the single executable: the command line, and the exports of `townhall` registered
// for the modules of projects and plugins (src/kernel/operator-code.ts).
import * as townhall from '../../src/index.ts';

(globalThis as Record<symbol, unknown>)[Symbol.for('townhall.installation')] = townhall;

// Node still prints a warning for the experimental module loader, which does not help the user.
process.removeAllListeners('warning');
process.on('warning', (warning) => {
  if (warning.name !== 'ExperimentalWarning') process.stderr.write(`${warning.stack ?? warning.message}\n`);
});

void import('../../src/cli/main.ts');
