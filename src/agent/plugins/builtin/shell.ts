// The plugin `shell`: one command in the workspace. Unlike `files` it is not confined to the workspace, since a program can
// open whatever its user can; so every call needs approval unless the configuration says otherwise.
import type { Clock } from '../../../kernel/clock.ts';
import { runProcess, type ProcessEnd } from '../../processes/index.ts';
import { definePlugin, type Plugin } from '../definition/plugin.ts';
import type { Workspace } from './workspace.ts';

// The model pays for every byte of output in each later step.
const maxOutputBytes = 128 * 1024;
const defaultSeconds = 60;
const maxSeconds = 600;
// SIGTERM, a grace period and SIGKILL take up to this after the command's own deadline.
const processEndMs = 10_000;

type ShellInput = { command: string; folder?: string; input?: string; timeoutSeconds?: number };

const inputSchema = {
  type: 'object',
  required: ['command'],
  properties: {
    command: { type: 'string', minLength: 1, maxLength: 64 * 1024, pattern: '^[^\\u0000]+$' },
    folder: {
      type: 'string',
      minLength: 1,
      maxLength: 4096,
      description: 'A folder of the workspace to run in.',
    },
    input: {
      type: 'string',
      maxLength: 1024 * 1024,
      description: 'What the command reads on standard input.',
    },
    timeoutSeconds: { type: 'integer', minimum: 1, maximum: maxSeconds },
  },
  additionalProperties: false,
};

export function shell({
  workspace,
  env,
  clock,
}: {
  workspace: Workspace;
  /** The environment of commands; none of the agent's secrets are in it. */
  env: Readonly<Record<string, string>>;
  clock: Clock;
}): Plugin {
  return definePlugin<{ run: ShellInput }>({
    name: 'shell',
    title: 'Shell',
    description: 'Runs a command in the workspace.',
    settings: {
      type: 'object',
      properties: { approval: { enum: ['always', 'never'] } },
      additionalProperties: false,
    },
    availability: () =>
      process.platform === 'win32'
        ? { available: false, reasons: ['It needs a POSIX shell.'] }
        : { available: true },
    actions: {
      run: {
        description: `Runs a command with sh in the workspace and returns its exit code and output. What it leaves running in the background ends with it. It may take ${defaultSeconds} seconds, or up to ${maxSeconds} when asked for.`,
        api: true,
        command: true,
        needsApproval: (_input, settings) => settings['approval'] !== 'never',
        timeoutMs: maxSeconds * 1000 + processEndMs,
        input: inputSchema,
        async run({ command, folder = '.', input, timeoutSeconds = defaultSeconds }, { signal }) {
          const result = await runProcess({
            // Both outputs go to one pipe, which keeps their order.
            command: ['/bin/sh', '-c', `exec 2>&1\n${command}`],
            folder: await workspace.folder(folder),
            env,
            input,
            maxOutputBytes,
            timeoutMs: timeoutSeconds * 1000,
            signal,
            clock,
          });
          const ended = describeEnd(result.because, timeoutSeconds);
          return {
            exitCode: result.exitCode,
            ...(result.signal === null ? {} : { signal: result.signal }),
            output: result.output,
            ...(result.truncated ? { truncated: true } : {}),
            ...(ended === undefined ? {} : { ended }),
          };
        },
      },
    },
  });
}

function describeEnd(because: ProcessEnd['because'], timeoutSeconds: number): string | undefined {
  switch (because) {
    case 'exit':
      return undefined;
    case 'deadline':
      return `It was ended after ${timeoutSeconds} seconds.`;
    case 'aborted':
      return 'It was ended with its run.';
    case 'flood':
      return 'It was ended because it said too much.';
  }
}
