// The plugin `shell`: one command in the workspace. Unlike `files` it is held by no folder, since a program may open
// what its user may; a person's approval is what stands before it, unless the configuration says otherwise.
import type { Clock } from '../../../kernel/clock.ts';
import { runProcess } from '../../processes/index.ts';
import { definePlugin, type Plugin } from '../plugin.ts';
import type { Workspace } from './workspace.ts';

export interface ShellNeeds {
  workspace: Workspace;
  /** The environment of commands; none of the agent's secrets are in it. */
  env: Readonly<Record<string, string>>;
  clock: Clock;
}

// What a model is shown; a program may say more than anybody wants to read and pay for.
const maximumOutputBytes = 128 * 1024;
const defaultSeconds = 60;
const longestSeconds = 600;
// The time in which a command that was told to end is ended.
const endingMs = 10_000;

type ShellInputs = {
  run: { command: string; folder?: string; input?: string; timeoutSeconds?: number };
};

export function shell({ workspace, env, clock }: ShellNeeds): Plugin {
  return definePlugin<ShellInputs>({
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
        description: `Runs a command with sh in the workspace and returns its exit code and output. What it leaves running in the background ends with it. It may take ${defaultSeconds} seconds, or up to ${longestSeconds} when asked for.`,
        api: true,
        command: true,
        needsApproval: (_input, settings) => settings['approval'] !== 'never',
        timeoutMs: longestSeconds * 1000 + endingMs,
        input: {
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
            timeoutSeconds: { type: 'integer', minimum: 1, maximum: longestSeconds },
          },
          additionalProperties: false,
        },
        async run({ command, folder = '.', input, timeoutSeconds = defaultSeconds }, { signal }) {
          // Both outputs on one pipe, so that they come in the order in which they were written.
          const end = await runProcess({
            command: ['/bin/sh', '-c', `exec 2>&1\n${command}`],
            folder: await workspace.folder(folder),
            env,
            ...(input === undefined ? {} : { input }),
            maxOutputBytes: maximumOutputBytes,
            timeoutMs: timeoutSeconds * 1000,
            signal,
            clock,
          });
          const why = {
            exit: undefined,
            deadline: `It was ended after ${timeoutSeconds} seconds.`,
            aborted: 'It was ended with its run.',
            flood: 'It was ended because it said too much.',
          }[end.because];
          return {
            exitCode: end.exitCode,
            ...(end.signal === null ? {} : { signal: end.signal }),
            output: end.output,
            ...(end.truncated ? { truncated: true } : {}),
            ...(why === undefined ? {} : { ended: why }),
          };
        },
      },
    },
  });
}
