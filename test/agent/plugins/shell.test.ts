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

// The limit of a whole call; the commands end before it.
const callTimeoutMs = 20_000;

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
    // The tests look up processes by the ids that the commands report, so there is no PID namespace.
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
        timeoutMs: callTimeoutMs,
        clock: systemClock,
        log: silentLog,
      });
  }

  beforeEach(async () => {
    folder = await realpath(await mkdtemp(join(tmpdir(), 'townhall-shell-')));
    await open();
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** The process id in a file; 0 while the command has not written it. */
  const pidIn = async (name: string) => Number(await readFile(join(folder, name), 'utf8').catch(() => '0'));

  test('returns the exit code and output of a command', async () => {
    expect(await call({ command: 'pwd; echo wrong >&2; cat; exit 3', input: 'from stdin' })).toEqual({
      ok: true,
      output: { exitCode: 3, output: `${folder}\nwrong\nfrom stdin` },
    });
  });

  test('gives commands none of the agent’s secrets', async () => {
    const outcome = await call({ command: 'env' });
    expect(JSON.stringify(outcome)).toContain('PATH=');
    expect(JSON.stringify(outcome)).not.toContain('secret');
  });

  test('needs an approval by default', async () => {
    expect(needsApproval({ command: 'ls' })).toBe(true);
    expect(await call({ command: 'echo > ran' }, { isApproved: false })).toMatchObject({
      ok: false,
      problem: { code: 'approval_required' },
    });
    await expect(readFile(join(folder, 'ran'))).rejects.toThrow('ENOENT');
  });

  test('needs no approval if the settings turn it off', async () => {
    await open({ approval: 'never' });
    expect(await call({ command: 'echo free' }, { isApproved: false })).toMatchObject({
      ok: true,
      output: { output: 'free\n' },
    });
  });

  test('refuses an unknown setting for approvals', async () => {
    await expect(open({ approval: 'sometimes' })).rejects.toThrow(
      /settings of the plugin "shell" are invalid/,
    );
  });

  test('ends a command and its descendants at the deadline', async () => {
    const command = `
      trap '' TERM
      sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' &
      echo $$ > parent
      while :; do sleep 1; done`;
    const startedMs = performance.now();
    const outcome = await call({ command, timeoutSeconds: 1 });
    expect(outcome).toMatchObject({
      ok: true,
      output: { exitCode: null, signal: 'SIGKILL', ended: 'It was stopped after 1 second.' },
    });
    expect(performance.now() - startedMs).toBeLessThan(callTimeoutMs);
    const pids = [await pidIn('parent'), await pidIn('child')];
    expect(Math.min(...pids)).toBeGreaterThan(1);
    expect(await Promise.all(pids.map(isRunning))).toEqual([false, false]);
  });

  test('ends background processes of a command in any process group', async () => {
    const command = `
      sleep 300 & echo $! > one
      setsid sh -c 'echo $$ > two; exec sleep 300' > /dev/null 2>&1 &
      while [ ! -s two ]; do sleep 0.05; done
      echo done`;
    const outcome = await call({ command });
    expect(outcome).toMatchObject({ ok: true, output: { exitCode: 0, output: 'done\n' } });
    expect(await pidIn('one')).toBeGreaterThan(1);
    expect(await pidIn('two')).toBeGreaterThan(1);
    await expect
      .poll(async () => [await isRunning(await pidIn('one')), await isRunning(await pidIn('two'))])
      .toEqual([false, false]);
  });

  test('ends a descendant with an empty environment and its own session', async () => {
    const script = `
      const options = { detached: true, env: {}, stdio: 'ignore' };
      const { pid } = require('child_process').spawn('sleep', ['300'], options);
      require('fs').writeFileSync('two', String(pid));
      process.exit(0);`;
    const command = `
      env -i setsid /bin/sh -c 'echo $$ > one; exec sleep 300' > /dev/null 2>&1 &
      while [ ! -s one ]; do sleep 0.05; done
      '${process.execPath}' -e "${script}"
      echo done`;
    const outcome = await call({ command });
    expect(outcome).toMatchObject({ ok: true, output: { exitCode: 0, output: 'done\n' } });
    const pids = [await pidIn('one'), await pidIn('two')];
    expect(Math.min(...pids)).toBeGreaterThan(1);
    expect(await Promise.all(pids.map(isRunning))).toEqual([false, false]);
  });

  test('keeps the first and last output of a flooding command', async () => {
    const startedMs = performance.now();
    const outcome = await call({ command: 'echo first; exec yes' });
    expect(performance.now() - startedMs).toBeLessThan(callTimeoutMs);
    expect(outcome).toMatchObject({
      ok: true,
      output: { truncated: true, ended: 'It was stopped because it wrote too much output.' },
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

  test.each(['..', 'absent'])('refuses to run in the folder %s', async (path) => {
    expect(await call({ command: 'pwd', folder: path })).toMatchObject({
      ok: false,
      problem: { code: 'action_refused' },
    });
  });
});

describe('runProcess', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-process-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const run = (...command: string[]) =>
    runProcess({
      command,
      folder,
      env: { PATH: '/usr/bin:/bin' },
      maxOutputBytes: 1024,
      timeoutMs: 5_000,
      signal: new AbortController().signal,
      clock: systemClock,
    });

  test('reports a program that does not exist', async () => {
    await expect(run('no-such-program')).rejects.toMatchObject({
      code: 'action_refused',
      message: 'The program cannot be started: it does not exist.',
    });
  });

  test('reports a file that is not executable', async () => {
    await writeFile(join(folder, 'plain'), 'no program');
    await expect(run('./plain')).rejects.toMatchObject({
      message: 'The program cannot be started: it is not executable.',
    });
  });

  test.runIf(process.platform === 'linux')('reports an argument that is too long', async () => {
    await expect(run('printf', '界'.repeat(50_000))).rejects.toMatchObject({
      message: expect.stringContaining('its command is too long') as string,
    });
  });

  test('passes arguments without a shell', async () => {
    expect(await run('printf', '%s', '-x "a b"')).toMatchObject({ exitCode: 0, output: '-x "a b"' });
  });
});
