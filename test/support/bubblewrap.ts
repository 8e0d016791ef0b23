// Whether programs can be sandboxed on this machine. If not, tests of the sandbox are skipped
// with a warning, and other tests run commands without it.
import { spawnSync } from 'node:child_process';

export const hasBubblewrap =
  spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', '/bin/sh', '-c', ':'], { stdio: 'ignore' })
    .status === 0;

if (!hasBubblewrap)
  console.warn('SKIPPED: bubblewrap does not work here; the sandbox of the agent is not tested.');
