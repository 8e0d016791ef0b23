// The plugin `shell`: one command in a sandbox over the workspace. The sandbox blocks other files,
// the network and protected files; a call that requests one of the last two always needs an approval.
import type { Clock } from '../../../kernel/clock.ts';
import { outputDecoder, runProcess, type ProcessEnd } from '../../processes/index.ts';
import { definePlugin, type ActionContext, type Plugin, type ToolPermission } from '../definition/plugin.ts';
import type { CoveredFolders, ProgramRunner, RenamedFile } from './workspace/program-runner.ts';
import type { Workspace, WorkspaceAt } from './workspace/workspace.ts';

// The model pays for every byte of output in each later step.
const maxOutputBytes = 128 * 1024;
const defaultSeconds = 60;
const maxSeconds = 600;
// After the command's own deadline, SIGTERM, a grace period and SIGKILL take up to this long.
const processEndMs = 10_000;

type ShellInput = {
  command: string;
  folder?: string;
  input?: string;
  timeoutSeconds?: number;
  network?: boolean;
  protected?: boolean;
};

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
      description: 'The standard input of the command.',
    },
    timeoutSeconds: { type: 'integer', minimum: 1, maximum: maxSeconds },
    network: {
      type: 'boolean',
      description: 'Whether the command needs the network, which always needs an approval.',
    },
    protected: {
      type: 'boolean',
      description:
        'Whether the command changes files that other programs run or obey, such as ' +
        'package.json, Makefile, .git/config or hooks, which always needs an approval.',
    },
  },
  additionalProperties: false,
};

interface ShellOptions {
  /** Each call runs in the workspace of its session. */
  workspaceAt: WorkspaceAt;
  programs: ProgramRunner;
  clock: Clock;
}

export function shell({ workspaceAt, programs, clock }: ShellOptions): Plugin {
  return definePlugin<{ run: ShellInput }>({
    name: 'shell',
    title: 'Shell',
    description: 'Runs a command in the workspace.',
    settings: {
      type: 'object',
      properties: { approval: { enum: ['always', 'never'] }, network: { enum: ['ask', 'allow', 'deny'] } },
      additionalProperties: false,
    },
    availability() {
      if (process.platform === 'win32') return { available: false, reasons: ['It needs a POSIX shell.'] };
      const { missing } = programs.sandbox;
      return missing === undefined ? { available: true } : { available: false, reasons: [missing] };
    },
    actions: {
      run: {
        description:
          'Runs a command with sh in the workspace and returns its exit code and output. Processes ' +
          'that it leaves in the background are stopped when it exits. It may take ' +
          `${defaultSeconds} seconds, or up to ${maxSeconds} with \`timeoutSeconds\`. It sees only ` +
          "the workspace and the system's programs, and has no network unless the call requests it.",
        api: true,
        command: true,
        needsApproval,
        permissions: (input, { workspace }) => permissionsOf(input, workspaceAt(workspace)),
        timeoutMs: maxSeconds * 1000 + processEndMs,
        input: inputSchema,
        run: (input, { workspace, signal, settings, showOutput, refuse }) => {
          if (input.network === true && settings['network'] === 'deny')
            refuse('The settings of the agent do not allow commands to use the network.');
          return runCommand(input, {
            workspace: workspaceAt(workspace),
            programs,
            clock,
            signal,
            settings,
            showOutput,
          });
        },
      },
    },
  });
}

async function permissionsOf(
  { command, folder = '.', input, network, protected: changesProtected }: ShellInput,
  workspace: Workspace,
): Promise<ToolPermission[]> {
  const permissions: ToolPermission[] = [{ command }, ...(await folderRight(workspace, folder))];
  // Programs such as sh and python run what they read from standard input.
  if (input !== undefined && input !== '') permissions.push({ right: 'input', command, isIncluded: true });
  if (network === true) permissions.push({ right: 'network', command });
  if (changesProtected === true) permissions.push({ right: 'protected', command });
  return permissions;
}

// A command such as `npm test` runs other code in another folder, so a folder below the workspace
// is a right of its own.
async function folderRight(workspace: Workspace, folder: string): Promise<ToolPermission[]> {
  const path = await workspace.resolve(folder);
  return path === '.' ? [] : [{ right: 'folder', path, isIncluded: true }];
}

function needsApproval(
  { network = false, protected: changesProtected = false }: ShellInput,
  settings: Readonly<Record<string, unknown>>,
): boolean {
  if (settings['approval'] !== 'never') return true;
  return changesProtected || (network && settings['network'] !== 'allow');
}

interface CommandContext extends Pick<ActionContext, 'signal' | 'settings' | 'showOutput'> {
  workspace: Workspace;
  programs: ProgramRunner;
  clock: Clock;
}

async function runCommand(
  input: ShellInput,
  { workspace, programs, clock, signal, settings, showOutput }: CommandContext,
): Promise<object> {
  const decode = outputDecoder();
  const { command, folder = '.', timeoutSeconds = defaultSeconds, network = false } = input;
  const { result, renamed, coveredFolders } = await programs.run(
    {
      // Standard output and standard error share one pipe, which keeps their order.
      command: ['/bin/sh', '-c', `exec 2>&1\n${command}`],
      workspace,
      folder: await workspace.folder(folder),
      settings: { network: network || settings['network'] === 'allow' },
      mayChangeProtected: input.protected ?? false,
    },
    (program) =>
      runProcess({
        ...program,
        input: input.input,
        maxOutputBytes,
        onOutput: (chunk) => showOutput(decode(chunk)),
        timeoutMs: timeoutSeconds * 1000,
        signal,
        clock,
      }),
  );
  const endText = describeEnd(result.endReason, timeoutSeconds);
  const notices = describeSideEffects(renamed, coveredFolders);
  return {
    exitCode: result.exitCode,
    ...(result.signal === null ? {} : { signal: result.signal }),
    output: result.output,
    ...(result.truncated ? { truncated: true } : {}),
    ...(endText === undefined ? {} : { ended: endText }),
    ...(notices.length === 0 ? {} : { notice: notices.join(' ') }),
  };
}

/** What the sandbox did that the model would not expect, one sentence for each. */
function describeSideEffects(
  renamed: readonly RenamedFile[],
  { hidden, readOnly }: CoveredFolders,
): string[] {
  const notices: string[] = [];
  if (renamed.length > 0)
    notices.push(
      'The command created files that other programs run or obey, which needs "protected": true. ' +
        `They were renamed: ${joinItems(renamed.map(({ from, to }) => `${from} is now ${to}`))}.`,
    );
  if (readOnly.length > 0)
    notices.push(
      'The workspace has too many files that other programs run or obey to protect each of them, so the ' +
        `command could not write to these folders at all: ${joinItems(readOnly)}.`,
    );
  if (hidden.length > 0)
    notices.push(
      'The workspace has too many secrets to hide each of them, so these folders appeared empty: ' +
        `${joinItems(hidden)}.`,
    );
  return notices;
}

function joinItems(paths: readonly string[]): string {
  return paths.length <= 20
    ? paths.join(', ')
    : `${paths.slice(0, 20).join(', ')}, and ${paths.length - 20} more`;
}

function describeEnd(endReason: ProcessEnd['endReason'], timeoutSeconds: number): string | undefined {
  switch (endReason) {
    case 'exit':
      return undefined;
    case 'deadline':
      return `It was stopped after ${timeoutSeconds} ${timeoutSeconds === 1 ? 'second' : 'seconds'}.`;
    case 'aborted':
      return 'It was stopped because its run ended.';
    case 'flood':
      return 'It was stopped because it wrote too much output.';
  }
}
