// A service out of the configuration: a command that the agent keeps running, such as a development server or a watcher.
// It is started again when it ends; the command `output` returns what it has printed.
import type { Clock } from '../../kernel/clock.ts';
import { startProcess, type ProcessEnd, type RunningProcess } from '../processes/index.ts';
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
  workspace: string;
  /** The environment that `env` is added to. */
  baseEnv: Readonly<Record<string, string>>;
  clock: Clock;
}): ServiceDefinition {
  const { name, title = name, command, workspace, clock } = options;
  const env = { ...options.baseEnv, ...options.env };
  let current: RunningProcess | undefined;
  return {
    name,
    title,
    ...(options.autostart === undefined ? {} : { autostart: options.autostart }),
    async start({ failed }) {
      current = startProcess({ command, folder: workspace, env, maxOutputBytes, graceMs, clock });
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
        description: 'What the program has said: the beginning and the end of it.',
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
          const { exitCode, output, truncated, because } = await program(command);
          return { exitCode, output, truncated, ended: because };
        },
      },
    ]),
  );
}

function describeEnd({ exitCode, signal, because }: ProcessEnd): string {
  if (because === 'flood') return 'It was ended because it said too much.';
  return exitCode === null
    ? `It was ended by ${signal ?? 'a signal'}.`
    : `It ended by itself with the exit code ${exitCode}.`;
}
