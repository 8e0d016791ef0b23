// Opens an address in the browser of the person at this machine.
import { spawn } from 'node:child_process';

/** Prints a line where no browser can be started. */
export function openInBrowser(address: string, printError: (line: string) => void): void {
  const command = browserCommand(address, process.platform);
  const reportFailure = (): void => printError('No browser could be started; open the address yourself.');
  if (command === undefined) return reportFailure();
  const child = spawn(command.program, command.args, { stdio: 'ignore', detached: true });
  child.once('error', reportFailure);
  child.unref();
}

/**
 * The program that opens the address. Undefined for all but http addresses: this one may come from a server,
 * and a file or an option of the program must not be opened by it.
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
