// A program that the agent keeps running as one of its services, by configuration: a development server, a watcher.
// It is started again when it ends, and its last words can be read with the command `output`.
import type { Clock } from '../../kernel/clock.ts';
import { startProgram, type Program } from '../processes/index.ts';
import type { ServiceDefinition, ServiceOperation } from './definition.ts';

export interface ProcessServiceNeeds {
  name: string;
  title?: string;
  command: readonly string[];
  env?: Readonly<Record<string, string>>;
  autostart?: boolean;
  commands?: Readonly<Record<string, { description?: string; command: readonly string[] }>>;
  workspace: string;
  /** What its own `env` is added to. */
  baseEnv: Readonly<Record<string, string>>;
  clock: Clock;
}

const keptOutputBytes = 1024 * 1024;
const graceMs = 5_000;
const nothing = { type: 'object', additionalProperties: false };

export function processService(needs: ProcessServiceNeeds): ServiceDefinition {
  const { name, title = name, command, workspace, clock } = needs;
  const env = { ...needs.baseEnv, ...needs.env };
  let program: Program | undefined;
  const own = Object.entries(needs.commands ?? {}).map(
    ([commandName, { description = '', command: given }]): [string, ServiceOperation] => [
      commandName,
      {
        description,
        input: nothing,
        async run(_input, call) {
          const { exitCode, output, truncated, because } = await call.program(given);
          return { exitCode, output, truncated, ended: because };
        },
      },
    ],
  );
  return {
    name,
    title,
    ...(needs.autostart === undefined ? {} : { autostart: needs.autostart }),
    async start({ failed }) {
      const mine = startProgram({
        command,
        folder: workspace,
        env,
        maxOutputBytes: keptOutputBytes,
        graceMs,
        clock,
      });
      program = mine;
      mine.ended.then(
        ({ exitCode, signal, because }) => {
          if (because === 'flood') failed('It was ended because it said too much.');
          else
            failed(
              exitCode === null
                ? `It was ended by ${signal ?? 'a signal'}.`
                : `It ended by itself with the exit code ${exitCode}.`,
            );
        },
        () => failed('The program cannot be started.'),
      );
    },
    async stop() {
      await program?.stop().catch(() => {});
    },
    commands: {
      output: {
        description: 'What the program has said: the beginning and the end of it.',
        input: nothing,
        run: async () => program?.output() ?? { text: '', bytes: 0, truncated: false },
      },
      ...Object.fromEntries(own),
    },
  };
}
