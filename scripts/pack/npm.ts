// Runs npm as a child process, without its audits, funding messages and update notices.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Returns the output; throws with npm's error text. */
export async function runNpm(parameters: readonly string[], folder: string): Promise<string> {
  try {
    const { stdout } = await run(
      'npm',
      [...parameters, '--no-audit', '--no-fund', '--no-update-notifier', '--loglevel', 'error'],
      {
        cwd: folder,
        maxBuffer: 64 * 1024 ** 2,
        timeout: 600_000,
      },
    );
    return stdout;
  } catch (error) {
    const { stderr = '', message } = error as { stderr?: string; message: string };
    throw new Error(`npm ${parameters[0]} failed:\n${stderr || message}`, { cause: error });
  }
}
