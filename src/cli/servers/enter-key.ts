// The Enter key of a server command that runs in a terminal. A background process that reads from its
// terminal is stopped (SIGTTIN), so the terminal is read only while the process is in the foreground.
import { readFileSync } from 'node:fs';

/**
 * Whether Enter reaches this process now. Job control is visible on Linux only;
 * elsewhere a terminal is enough.
 */
export function hasEnterKey(): boolean {
  if (!process.stdin.isTTY) return false;
  try {
    // After the name in parentheses: state, parent, process group, session, terminal, foreground group.
    const [, , group, , , foreground] =
      readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return group === foreground;
  } catch {
    return true;
  }
}

/**
 * Calls `onEnter` for each line, also after Ctrl-Z and `fg`. After `&` or `bg` the Enter key stays without
 * effect, even after `fg`: bash sends SIGCONT only to stopped jobs.
 */
export function listenForEnter(onEnter: () => void): void {
  if (!process.stdin.isTTY) return;
  const listen = (): void => {
    if (hasEnterKey()) process.stdin.resume();
    else process.stdin.pause();
  };
  process.stdin.on('data', onEnter);
  process.on('SIGCONT', listen);
  listen();
}
