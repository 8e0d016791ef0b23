// Opens an address in the browser of the person at this machine.
import { spawn } from 'node:child_process';

/** Opens the address, or prints a line when no browser can be started. */
export function openInBrowser(address: string, printError: (line: string) => void): void {
  const command = browserCommand(address, process.platform);
  const reportFailure = (): void => printError('No browser could be started; open the address yourself.');
  if (command === undefined) return reportFailure();
  const child = spawn(command.program, command.args, { stdio: 'ignore', detached: true });
  child.once('error', reportFailure);
  child.unref();
}

/**
 * The program that opens the address. Undefined unless the address begins with http or https: it may come
 * from a server, which must not be able to open a local file or pass an option to the program.
 */
export function browserCommand(
  address: string,
  platform: string,
): { program: string; args: string[] } | undefined {
  const url = URL.parse(address);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  if (platform === 'darwin') return { program: 'open', args: [url.href] };
  // cmd's `start` would execute what follows an `&` in the address.
  if (platform === 'win32') return { program: 'rundll32', args: ['url.dll,FileProtocolHandler', url.href] };
  return { program: 'xdg-open', args: [url.href] };
}
