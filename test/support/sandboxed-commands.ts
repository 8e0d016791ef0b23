// A program that runs commands in the sandbox, so that a test can start it as another user. The
// workspace and the commands are its arguments; it prints their outputs.
import { createProgramRunner } from '../../src/agent/plugins/builtin/workspace/program-runner.ts';
import { openWorkspace } from '../../src/agent/plugins/builtin/workspace/workspace.ts';
import { openSandbox, runProcess } from '../../src/agent/processes/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';

const [folder = '', ...commands] = process.argv.slice(2);
const path = process.env['PATH'] ?? '';
const workspace = await openWorkspace({ folder, hidden: [] });
const sandbox = await openSandbox({ workspace: workspace.root, hidden: [], read: [], isOff: false, path });
const programs = createProgramRunner({ sandbox, workspace, env: { PATH: path } });
const { signal } = new AbortController();
const outputs: string[] = [];
for (const command of commands) {
  const request = { command: ['/bin/sh', '-c', `exec 2>&1\n${command}`], mayChangeProtected: false };
  const { result } = await programs.run(request, (program) =>
    runProcess({ ...program, maxOutputBytes: 10_000, timeoutMs: 10_000, signal, clock: systemClock }),
  );
  outputs.push(result.output);
}
process.stdout.write(JSON.stringify(outputs));
