// The plugin `shell` with real programs and without a sandbox: results, limits, and that no process
// outlives its command.
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  callAction,
  createProgramRunner,
  createRegistry,
  openWorkspace,
  shell,
  type ActionOutcome,
} from '../../../src/agent/plugins/index.ts';
import { childEnvironment, openSandbox, runProcess } from '../../../src/agent/processes/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../support/databases.ts';
import { isRunning } from '../../support/processes.ts';

describe('the plugin shell', () => {
  let folder: string;
  let call: (
    input: unknown,
    options?: { signal?: AbortSignal; isApproved?: boolean },
  ) => Promise<ActionOutcome>;
  let needsApproval: (input: unknown) => boolean | undefined;

  async function open(settings: Record<string, unknown> = {}) {
    const workspace = await openWorkspace({ folder, hidden: [] });
    const env = childEnvironment({ ...process.env, AGENT_GATEWAY_TOKEN: 'th_usr_secret' });
    // The ends of processes are watched from here, so the commands must have no process ids of their own.
    const sandbox = await openSandbox({ workspace: folder, hidden: [], read: [], isOff: true, path: '' });
    const programs = createProgramRunner({ sandbox, workspace, env });
    const registry = createRegistry([shell({ workspaceAt: () => workspace, programs, clock: systemClock })], {
      config: new Map([['shell', { settings }]]),
    });
    const tool = registry.tool('shell_run');
    if (!tool) throw new Error('There is no shell_run.');
    needsApproval = (input) => tool.needsApproval(input, { workspace: folder });
    call = (input, { signal = new AbortController().signal, isApproved = true } = {}) =>
      callAction({
        tool,
        input,
        workspace: folder,
        isApproved,
        signal,
        timeoutMs: 20_000,
        clock: systemClock,
        log: silentLog,
      });
  }

  beforeEach(async () => {
    folder = await realpath(await mkdtemp(join(tmpdir(), 'townhall-shell-')));
    await open();
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const pidIn = async (name: string) => Number(await readFile(join(folder, name), 'utf8').catch(() => '0'));
  // An ended process whose status was not collected yet (a zombie) counts as ended.
  test('returns the exit code and output of a command', async () => {
    expect(await call({ command: 'pwd; echo wrong >&2; cat; exit 3', input: 'given' })).toEqual({
      ok: true,
      output: { exitCode: 3, output: `${folder}\nwrong\ngiven` },
    });
  });

  test('gives commands none of the agent’s secrets', async () => {
    const outcome = await call({ command: 'env' });
    expect(JSON.stringify(outcome)).toContain('PATH=');
    expect(JSON.stringify(outcome)).not.toContain('secret');
  });

  test('needs the approval of a person unless the settings say otherwise', async () => {
    expect(needsApproval({ command: 'ls' })).toBe(true);
    expect(await call({ command: 'echo > ran' }, { isApproved: false })).toMatchObject({
      ok: false,
      problem: { code: 'approval_required' },
    });
    expect(await readFile(join(folder, 'ran'), 'utf8').catch(() => 'never')).toBe('never');
    await open({ approval: 'never' });
    expect(await call({ command: 'echo free' }, { isApproved: false })).toMatchObject({
      ok: true,
      output: { output: 'free\n' },
    });
    await expect(open({ approval: 'sometimes' })).rejects.toThrow(
      /settings of the plugin "shell" do not fit/,
    );
  });

  test('ends a command and its descendants at the deadline', async () => {
    const command = `trap '' TERM; sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' & echo $$ > parent; while :; do sleep 1; done`;
    const startedMs = performance.now();
    const outcome = await call({ command, timeoutSeconds: 1 });
    expect(outcome).toMatchObject({
      ok: true,
      output: { exitCode: null, signal: 'SIGKILL', ended: 'It was ended after 1 seconds.' },
    });
    expect(performance.now() - startedMs).toBeLessThan(18_000);
    expect([await isRunning(await pidIn('parent')), await isRunning(await pidIn('child'))]).toEqual([
      false,
      false,
    ]);
  });

  test('ends background processes of a command in any process group', async () => {
    const outcome = await call({
      command:
        "sleep 300 & echo $! > one; setsid sh -c 'echo $$ > two; exec sleep 300' > /dev/null 2>&1 & while [ ! -s two ]; do sleep 0.05; done; echo done",
    });
    expect(outcome).toMatchObject({ ok: true, output: { exitCode: 0, output: 'done\n' } });
    expect(await pidIn('one')).toBeGreaterThan(1);
    expect(await pidIn('two')).toBeGreaterThan(1);
    await expect
      .poll(async () => [await isRunning(await pidIn('one')), await isRunning(await pidIn('two'))])
      .toEqual([false, false]);
  });

  test('ends a descendant with an empty environment and its own session', async () => {
    const detachedCommand = `const { pid } = require('child_process').spawn('sleep', ['300'], { detached: true, env: {}, stdio: 'ignore' }); require('fs').writeFileSync('two', String(pid)); process.exit(0)`;
    const outcome = await call({
      command: `env -i setsid /bin/sh -c 'echo $$ > one; exec sleep 300' > /dev/null 2>&1 & while [ ! -s one ]; do sleep 0.05; done; '${process.execPath}' -e "${detachedCommand}"; echo done`,
    });
    expect(outcome).toMatchObject({ ok: true, output: { exitCode: 0, output: 'done\n' } });
    const pids = [await pidIn('one'), await pidIn('two')];
    expect(Math.min(...pids)).toBeGreaterThan(1);
    expect(await Promise.all(pids.map(isRunning))).toEqual([false, false]);
  });

  test('reports why an absent program cannot be started', async () => {
    const options = {
      folder,
      env: { PATH: '/usr/bin:/bin' },
      maxOutputBytes: 1024,
      timeoutMs: 5_000,
      signal: new AbortController().signal,
      clock: systemClock,
    };
    await writeFile(join(folder, 'plain'), 'no program');
    await expect(runProcess({ ...options, command: ['no-such-program'] })).rejects.toMatchObject({
      code: 'action_refused',
      message: 'The program cannot be started: it is not there.',
    });
    await expect(runProcess({ ...options, command: ['./plain'] })).rejects.toMatchObject({
      message: 'The program cannot be started: it may not be run.',
    });
    expect(await runProcess({ ...options, command: ['printf', '%s', '-x "a b"'] })).toMatchObject({
      exitCode: 0,
      output: '-x "a b"',
    });
  });

  test('keeps the first and last output of a flooding command', async () => {
    const startedMs = performance.now();
    const outcome = await call({ command: 'echo first; exec yes' });
    expect(performance.now() - startedMs).toBeLessThan(18_000);
    expect(outcome).toMatchObject({
      ok: true,
      output: { truncated: true, ended: 'It was ended because of too much output.' },
    });
    const { output } = (outcome as { output: { output: string } }).output;
    expect(output.startsWith('first\ny\n')).toBe(true);
    expect(output).toMatch(/\[\d+ bytes are left out here\]/);
    expect(output.length).toBeLessThan(140_000);
  });

  test('ends a command with the run that started it', async () => {
    const run = new AbortController();
    const callPromise = call({ command: 'echo $$ > pid; exec sleep 300' }, { signal: run.signal });
    await expect.poll(() => pidIn('pid')).toBeGreaterThan(1);
    run.abort();
    expect(await callPromise).toMatchObject({ ok: false });
    const pid = await pidIn('pid');
    await expect.poll(() => isRunning(pid)).toBe(false);
  });

  test('runs only in the workspace', async () => {
    expect(await call({ command: 'pwd', folder: '..' })).toMatchObject({
      ok: false,
      problem: { code: 'action_refused' },
    });
    expect(await call({ command: 'pwd', folder: 'absent' })).toMatchObject({
      ok: false,
      problem: { code: 'action_refused' },
    });
  });
});
