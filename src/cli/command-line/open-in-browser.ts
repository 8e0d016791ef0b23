// Opens an address in the browser of the person at this machine.
import { spawn } from 'node:child_process';

/** Says so on the terminal where no browser can be started. */
export function openInBrowser(address: string, printError: (line: string) => void): void {
  const [program, ...args] = { darwin: ['open'], win32: ['cmd', '/c', 'start', ''] }[
    process.platform as string
  ] ?? ['xdg-open'];
  const child = spawn(program as string, [...args, address], { stdio: 'ignore', detached: true });
  child.once('error', () => printError('No browser could be started; open the address yourself.'));
  child.unref();
}
