// Checks whether an agent on this machine can run commands in a sandbox.
import { tmpdir } from 'node:os';
import { agentSettings } from '../../agent/config.ts';
import { openSandbox } from '../../agent/processes/index.ts';
import { readSettings } from '../../kernel/settings.ts';
import { ok, warn, type Finding } from './finding.ts';

/** An agent works without commands, so a missing sandbox is a warning. */
export async function checkSandbox(env: Readonly<Record<string, string | undefined>>): Promise<Finding> {
  const { unsafeShell: isOff } = readSettings({ unsafeShell: agentSettings.unsafeShell }, {}, env);
  const sandbox = await openSandbox({ workspace: tmpdir(), hidden: [], read: [], isOff, path: env['PATH'] });
  if (sandbox.isOff)
    return warn(
      'sandbox',
      'AGENT_UNSAFE_SHELL is set: commands of an agent run with all rights of this user.',
      'Remove it, and install bubblewrap.',
    );
  if (sandbox.missing !== undefined) {
    const [problem = '', ...remedy] = sandbox.missing.split(/(?<=\.) /);
    return warn('sandbox', `The shell of an agent is off: ${problem}`, remedy.join(' '));
  }
  return ok('sandbox', 'Commands of an agent run in a sandbox.');
}
