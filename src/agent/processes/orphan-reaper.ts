// Ends the agent's child processes when the agent is killed or runs out of memory. A small shell
// script waits on a pipe that only the agent holds. When the pipe closes, the script ends every
// process whose environment or file size limit carries the agent's mark, in any process group.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { Log } from '../../kernel/log.ts';
import { agentDigits, agentVariable } from './mark.ts';

export interface OrphanReaper {
  /** The mark for the environment of every child process; its descendants inherit it. */
  env: Readonly<Record<string, string>>;
  /** Ends the script; call it once all child processes have ended. */
  close(): void;
}

// The script reads the mark from the pipe: with the mark in its arguments or environment, it would find
// and end itself. Without /proc it reads the environments from ps. SIGKILL follows SIGTERM after two
// seconds.
const scriptOf = (digits: string): string => `
read -r mark || exit 0
while read -r _; do :; done
list_marked() {
  if [ -r /proc/self/environ ]; then
    {
      grep -lsF -- "${agentVariable}=$mark" /proc/[0-9]*/environ
      grep -lsE -- "^Max file size .* ${digits}[0-9]{9} +bytes" /proc/[0-9]*/limits
    } |
      while read -r file; do file=\${file#/proc/}; echo "\${file%/*}"; done | sort -u
  else
    ps -axEww -o pid= -o command= | awk -v mark="$mark" 'index($0, "${agentVariable}=" mark) { print $1 }'
  fi
}
pids=$(list_marked)
[ -z "$pids" ] && exit 0
kill -TERM $pids 2>/dev/null
for _ in 1 2; do
  sleep 1
  [ -z "$(list_marked)" ] && exit 0
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  pids=$(list_marked)
  [ -z "$pids" ] && exit 0
  kill -KILL $pids 2>/dev/null
  sleep 1
done
`;

/**
 * Starts the reaper. Call it before the first child process starts, since children inherit its mark.
 * Without a /bin/sh it logs a warning, and child processes outlive a killed agent.
 */
export function startOrphanReaper({ log }: { log: Log }): OrphanReaper {
  const mark = randomUUID();
  // A process group of its own, so that Ctrl-C at the agent's terminal does not end
  // the script before the agent.
  const child = spawn('/bin/sh', ['-c', scriptOf(agentDigits(mark))], {
    cwd: '/',
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' },
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.once('error', (error) =>
    log.warn({ err: error }, 'child processes will keep running if the agent is killed'),
  );
  child.stdin.on('error', () => {});
  child.stdin.write(`${mark}\n`);
  // Without unref the script and its pipe would keep the agent's event loop alive.
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return { env: { [agentVariable]: mark }, close: () => void child.stdin.end() };
}
