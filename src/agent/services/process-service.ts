// A service of the configuration: a command that the agent keeps running, such as a development
// server or a watcher. It is restarted when it ends; the command `output` returns its output.
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
  let current: RunningProcess | undefined;
  return {
    name,
    title,
    ...(options.autostart === undefined ? {} : { autostart: options.autostart }),
    ...(settings === undefined ? {} : { sandbox: settings }),
    async start({ failed }) {
      const program = await prepareProgram({ command, ownEnv, settings });
      current = startProcess({ ...program, maxOutputBytes, graceMs, clock });
      current.ended.then(
        (end) => failed(describeEnd(end)),
        () => failed('The program cannot be started.'),
      );
    },
    async stop() {
      await current?.stop().catch(() => {});
    },
    commands: {
      output: {
        description: 'The output of the program: its beginning and its end.',
        input: noInput,
        run: async () => current?.output() ?? { text: '', bytes: 0, truncated: false },
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
  if (endReason === 'flood') return 'It was ended because of too much output.';
  return exitCode === null
    ? `It was ended by ${signal ?? 'a signal'}.`
    : `It ended by itself with the exit code ${exitCode}.`;
}
