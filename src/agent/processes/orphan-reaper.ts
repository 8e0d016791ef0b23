// What ends the agent's programs when the agent itself can end nothing any more: killed, or out of memory. A shell of a
// few lines waits on a pipe that only the agent holds; when the pipe closes, however that came, it ends every process
// whose environment or limit of file size names this agent, in whatever group it is by then.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import type { Log } from '../../kernel/log.ts';
import { agentDigits, agentVariable } from './mark.ts';

export interface Keeper {
  /** Belongs into the environment of every program; what they start in turn inherits it. */
  env: Readonly<Record<string, string>>;
  /** Ends the waiting, once all programs have been ended. */
  close(): void;
}

// The mark comes through the pipe, because an argument or a variable would make the keeper find itself. Where there is
// no /proc, ps shows what a process was started with. Two seconds pass between asking and ending.
const scriptOf = (digits: string): string => `
read -r mark || exit 0
while read -r _; do :; done
found() {
  if [ -r /proc/self/environ ]; then
    { grep -lsF -- "${agentVariable}=$mark" /proc/[0-9]*/environ; grep -lsE -- "^Max file size .* ${digits}[0-9]{9} +bytes" /proc/[0-9]*/limits; } |
      while read -r file; do file=\${file#/proc/}; echo "\${file%/*}"; done | sort -u
  else
    ps -axEww -o pid= -o command= | awk -v mark="$mark" 'index($0, "${agentVariable}=" mark) { print $1 }'
  fi
}
pids=$(found)
[ -z "$pids" ] && exit 0
kill -TERM $pids 2>/dev/null
for _ in 1 2; do
  sleep 1
  [ -z "$(found)" ] && exit 0
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  pids=$(found)
  [ -z "$pids" ] && exit 0
  kill -KILL $pids 2>/dev/null
  sleep 1
done
`;

/** Begins at once, so that no program is ever without it. Where there is no shell the programs are on their own. */
export function keepPrograms({ log }: { log: Log }): Keeper {
  const mark = randomUUID();
  // In a group of its own, so that Ctrl-C at the agent's terminal does not end it before the agent.
  const child = spawn('/bin/sh', ['-c', scriptOf(agentDigits(mark))], {
    cwd: '/',
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' },
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.once('error', (error) =>
    log.warn({ err: error }, 'programs will not be ended if the agent is killed'),
  );
  child.stdin.on('error', () => {});
  child.stdin.write(`${mark}\n`);
  // Neither keeps the agent from ending.
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return { env: { [agentVariable]: mark }, close: () => void child.stdin.end() };
}
