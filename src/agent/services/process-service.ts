// A service from the configuration: a command that the agent keeps running, such as a development
// server or a watcher. It is restarted when it exits; the command `output` returns its output.
import type { Clock } from '../../kernel/clock.ts';
import {
  startProcess,
  type ProcessEnd,
  type RunningProcess,
  type SandboxSettings,
} from '../processes/index.ts';
import type { PrepareProgram } from './operations.ts';
import type { ServiceDefinition, ServiceOperation } from '../service-definition.ts';

const maxOutputBytes = 1024 * 1024;
const graceMs = 5_000;
const noInput = { type: 'object', additionalProperties: false };

export function processService(options: {
  name: string;
  title?: string;
  command: readonly string[];
  env?: Readonly<Record<string, string>>;
  autostart?: boolean;
  commands?: Readonly<Record<string, { description?: string; command: readonly string[] }>>;
  sandbox?: SandboxSettings;
  prepareProgram: PrepareProgram;
  clock: Clock;
}): ServiceDefinition {
  const { name, title = name, command, env: ownEnv, sandbox: settings, prepareProgram, clock } = options;
  let runningProcess: RunningProcess | undefined;
  return {
    name,
    title,
    ...(options.autostart === undefined ? {} : { autostart: options.autostart }),
    ...(settings === undefined ? {} : { sandbox: settings }),
    async start({ failed, signal }) {
      const program = await prepareProgram({ command, ownEnv, settings });
      // `stop` was called meanwhile and would not be called again for a program that starts now.
      if (signal.aborted) return;
      runningProcess = startProcess({ ...program, maxOutputBytes, graceMs, clock });
      runningProcess.ended.then(
        (end) => failed(describeEnd(end)),
        () => failed('The program cannot be started.'),
      );
    },
    async stop() {
      await runningProcess?.stop().catch(() => {});
    },
    commands: {
      output: {
        description: 'The output of the program: its beginning and its end.',
        input: noInput,
        run: async () => runningProcess?.output() ?? { text: '', bytes: 0, truncated: false },
      },
      ...configuredCommands(options.commands),
    },
  };
}

function configuredCommands(
  commands: Readonly<Record<string, { description?: string; command: readonly string[] }>> = {},
): Record<string, ServiceOperation> {
  return Object.fromEntries(
    Object.entries(commands).map(([name, { description = '', command }]): [string, ServiceOperation] => [
      name,
      {
        description,
        input: noInput,
        async run(_input, { program }) {
          const { exitCode, output, truncated, endReason } = await program(command);
          return { exitCode, output, truncated, ended: endReason };
        },
      },
    ]),
  );
}

function describeEnd({ exitCode, signal, endReason }: ProcessEnd): string {
  if (endReason === 'flood') return 'It was stopped because it wrote too much output.';
  return exitCode === null
    ? `It was killed by ${signal ?? 'a signal'}.`
    : `It exited by itself with the exit code ${exitCode}.`;
}
