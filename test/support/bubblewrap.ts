// Whether programs can be sandboxed on this machine. Tests of the sandbox are
// skipped elsewhere, with a warning; other tests run commands without it there.
import { spawnSync } from 'node:child_process';

export const hasBubblewrap =
  spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', '/bin/sh', '-c', ':'], { stdio: 'ignore' })
    .status === 0;

if (!hasBubblewrap)
  console.warn('SKIPPED: bubblewrap does not work here; the sandbox of the agent is not tested.');
