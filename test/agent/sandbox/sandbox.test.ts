// Rights of programs in the sandbox, and the behavior of the agent without one.
import { execFile } from 'node:child_process';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { openSandbox, type SandboxSettings } from '../../../src/agent/processes/index.ts';
import type { TestAgent } from '../../support/agent.ts';
import { hasBubblewrap } from '../../support/bubblewrap.ts';
import { openWorld, type World } from '../../support/session-world.ts';
import { listen } from '../../support/local-server.ts';

let world: World;
let folder: string;
beforeAll(async () => {
  world = await openWorld();
  folder = await realpath(await mkdtemp(join(tmpdir(), 'townhall-sandbox-')));
});
afterEach(() => world.reset());
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

interface ShellResult {
  exitCode: number;
  output: string;
  notice?: string;
}

async function run(agent: TestAgent, command: string, members: object = {}): Promise<ShellResult> {
  const payload = { command, ...members };
  const { result } = await agent.client.plugins.callAction({
    plugin_name: 'shell',
    action_name: 'run',
    payload,
  });
  return result as ShellResult;
}

async function startConfigured(config: object, workspace?: string): Promise<TestAgent> {
  const pluginConfig = join(folder, 'plugins.json');
  await writeFile(pluginConfig, JSON.stringify(config));
  return world.start({ settings: { pluginConfig }, ...(workspace === undefined ? {} : { workspace }) });
}

/** Runs the commands in turn and returns their outputs. Not as root, who can read folders of any mode. */
async function runAsUser(workspace: string, commands: readonly string[]): Promise<string[]> {
  const program = join(import.meta.dirname, '../../support/sandboxed-commands.ts');
  const nobodyUserId = 65_534;
  const user = process.getuid?.() === 0 ? { uid: nobodyUserId, gid: nobodyUserId } : {};
  if ('uid' in user)
    for (const path of ['.', ...(await readdir(workspace, { recursive: true }))])
      await chown(join(workspace, path), nobodyUserId, nobodyUserId);
  const { stdout } = await promisify(execFile)(process.execPath, [program, workspace, ...commands], user);
  return JSON.parse(stdout) as string[];
}

describe.skipIf(!hasBubblewrap)('a command in the sandbox', () => {
  test('runs in the workspace with the programs of the system', async () => {
    const agent = await world.start();
    expect(await run(agent, 'echo x > a && cat a | tr x y; pwd; exit 3')).toMatchObject({
      exitCode: 3,
      output: `y\n${await realpath(agent.workspace)}\n`,
    });
  });

  test('reaches the network when its call requests it', async () => {
    const server = createServer((socket) => socket.end('reached'));
    onTestFinished(() => void server.close());
    const { port } = await listen(server);
    const agent = await world.start();
    const connection = `socket.create_connection(("127.0.0.1", ${port}), 5)`;
    const command = `python3 -c 'import socket; print(${connection}.recv(9).decode())' 2>&1 | tail -n 1`;
    expect((await run(agent, command, { network: true })).output).toBe('reached\n');
    expect((await run(agent, command)).output).toContain('Connection refused');
  });

  test('sees no hidden path below the folders of the system', async () => {
    const hiddenPaths = [await realpath('/usr/share'), await realpath('/usr/bin/env')];
    const sandbox = await openSandbox({
      workspace: folder,
      hidden: hiddenPaths,
      read: [],
      isOff: false,
      path: '/usr/bin',
    });
    const { command, env } = sandbox.prepare({
      command: ['/bin/sh', '-c', 'ls -A /usr/share; cat /usr/bin/env 2>&1; ls /usr'],
      folder,
      env: {},
      paths: { hidden: [], readOnly: [] },
    });
    const [program = '', ...args] = command;
    const { stdout } = await promisify(execFile)(program, args, { env });
    expect(stdout).toMatch(/^cat: .*Permission denied\nbin\n/);
  });

  test('is refused if its arguments would be too long', async () => {
    const sandbox = await openSandbox({
      workspace: folder,
      hidden: [],
      read: [],
      isOff: false,
      path: '/usr/bin',
    });
    const readOnly = Array.from({ length: 1_000 }, (_, index) =>
      join(folder, `${'x'.repeat(1_000)}${index}`),
    );
    const program = { command: ['true'], folder, env: {}, paths: { hidden: [], readOnly } };
    expect(() => sandbox.prepare(program)).toThrow(/needs \d+ arguments of \d+ bytes/);
  });

  test('fails if it creates a folder whose name is not UTF-8', async () => {
    const agent = await world.start();
    const call = run(agent, `mkdir "$(printf '\\377')"; echo x > "$(printf '\\377')/.envrc"`);
    await expect(call).rejects.toMatchObject({
      code: 'action_refused',
      message: expect.stringContaining('not UTF-8') as string,
    });
    expect(await run(agent, `rm -r "$(printf '\\377')"; ls`)).toMatchObject({ exitCode: 0, output: '' });
  });
});

describe.skipIf(!hasBubblewrap)('a command in a workspace with protected files and secrets', () => {
  test('changes protected files when its call requests it', async () => {
    const agent = await world.start();
    await writeFile(join(agent.workspace, 'package.json'), '{}');
    expect((await run(agent, 'echo 1 > package.json')).exitCode).not.toBe(0);
    expect((await run(agent, 'echo 1 > package.json', { protected: true })).exitCode).toBe(0);
    expect(await readFile(join(agent.workspace, 'package.json'), 'utf8')).toBe('1\n');
  });

  test('sees no secret in a protected folder', async () => {
    const agent = await world.start();
    await mkdir(join(agent.workspace, '.devcontainer'));
    await writeFile(join(agent.workspace, '.devcontainer', '.env'), 'KEY=secret');
    const { output } = await run(agent, 'cat .devcontainer/.env 2>&1');
    expect(output).toBe('cat: .devcontainer/.env: Permission denied\n');
  });

  test('cannot uncover them by changing the mode of their folder', async () => {
    const workspace = await mkdtemp(join(tmpdir(), 'townhall-modes-'));
    onTestFinished(() => rm(workspace, { recursive: true }));
    await mkdir(join(workspace, 'config'));
    await writeFile(join(workspace, 'config', '.env'), 'KEY=secret');
    await writeFile(join(workspace, 'config', 'package.json'), '{}');
    await mkdir(join(workspace, 'closed'));
    await writeFile(join(workspace, 'closed', '.env'), 'KEY=secret');
    await chmod(join(workspace, 'closed'), 0o000);
    // The program takes its own rights away, to stop the sandbox from finding protected files: 311 and 300 deny
    // to list a folder, 555 and 400 to change it, 000 both. The sandbox restores the owner's rights after each
    // command, so that it still replaces or covers the files, and the last command can list every folder.
    const outputs = await runAsUser(workspace, [
      'mkdir new still; echo evil | tee new/Makefile still/Makefile Makefile; ' +
        'chmod 311 new; chmod 555 still; chmod 000 config; chmod 300 .',
      'chmod 755 config; cat config/.env; echo evil > config/package.json; chmod 400 config',
      'chmod 755 config; cat config/.env; echo evil > config/package.json',
      'chmod 755 closed; cat closed/.env; chmod 000 closed',
      'ls -d * new/* still/*',
    ]);
    expect(outputs.join('\n')).not.toContain('secret');
    expect(outputs.at(-1)?.split('\n')).toEqual([
      'Makefile.needs-approval',
      'closed',
      'config',
      'new',
      'new/Makefile.needs-approval',
      'still',
      'still/Makefile.needs-approval',
      '',
    ]);
    expect(await readFile(join(workspace, 'config', 'package.json'), 'utf8')).toBe('{}');
  });

  test('runs even with more of them than a sandbox can mount', async () => {
    const agent = await world.start();
    for (let index = 0; index < 1_500; index += 1) {
      const caseFolder = join(agent.workspace, 'fixtures', `group-${index % 10}`, `case-${index}`);
      await mkdir(caseFolder, { recursive: true });
      await writeFile(join(caseFolder, 'package.json'), '{}');
      if (index < 500) await writeFile(join(caseFolder, '.env'), 'KEY=secret');
    }
    await writeFile(join(agent.workspace, 'package.json'), '{}');
    const command =
      'echo x > ok; echo evil > package.json; ' +
      'cd fixtures/group-9; echo evil > case-1499/package.json; cat case-9/.env; ls';
    const { output, notice } = await run(agent, command, { timeoutSeconds: 60 });
    expect(await readFile(join(agent.workspace, 'ok'), 'utf8')).toBe('x\n');
    expect(await readFile(join(agent.workspace, 'package.json'), 'utf8')).toBe('{}');
    const lastFile = join(agent.workspace, 'fixtures', 'group-9', 'case-1499', 'package.json');
    expect(await readFile(lastFile, 'utf8')).toBe('{}');
    expect(output).not.toContain('secret');
    expect(notice).toMatch(/could not write to these folders.*fixtures.*these folders appeared empty/);
  }, 120_000);

  test('cannot add a hook where a repository is the smallest folder to cover', async () => {
    const agent = await world.start();
    await promisify(execFile)('git', ['init', '-q', '.'], { cwd: agent.workspace });
    const packageNames = Array.from({ length: 998 }, (_, index) => join('packages', String(index)));
    for (const name of packageNames) {
      await mkdir(join(agent.workspace, name), { recursive: true });
      await writeFile(join(agent.workspace, name, 'package.json'), '{}');
    }
    const { notice } = await run(agent, 'echo evil > .git/hooks/pre-commit', { timeoutSeconds: 60 });
    expect(notice).toContain('could not write to these folders at all: .git.');
    expect(await readdir(join(agent.workspace, '.git', 'hooks'))).not.toContain('pre-commit');
  }, 120_000);
});

describe.skipIf(!hasBubblewrap)('a new file with a protected name', () => {
  test('gets another name, which the result reports', async () => {
    const agent = await world.start();
    const { notice } = await run(agent, 'echo evil > .envrc');
    expect(notice).toContain('.envrc is now .envrc.needs-approval');
    expect(await readFile(join(agent.workspace, '.envrc.needs-approval'), 'utf8')).toBe('evil\n');
  });

  test('gets a random name if the name with the suffix is taken', async () => {
    const agent = await world.start();
    await writeFile(join(agent.workspace, 'justfile.needs-approval'), 'earlier');
    const { notice } = await run(agent, 'mkdir Makefile.needs-approval; echo evil | tee Makefile justfile');
    expect(notice).toMatch(/Makefile is now [\w-]+\.needs-approval, justfile is now/);
    const names = await readdir(agent.workspace);
    expect(names).not.toContain('Makefile');
    expect(names).not.toContain('justfile');
    expect(await readFile(join(agent.workspace, 'justfile.needs-approval'), 'utf8')).toBe('earlier');
  });

  test('gets another name if it replaces a protected link', async () => {
    const agent = await world.start();
    for (const name of ['Makefile', '.npmrc', 'justfile'])
      await symlink('tasks.txt', join(agent.workspace, name));
    const { notice } = await run(agent, 'rm Makefile; echo evil > Makefile; ln -sf evil.txt .npmrc');
    expect(notice).toContain('.npmrc is now .npmrc.needs-approval');
    expect(notice).toContain('Makefile is now Makefile.needs-approval');
    expect(notice).not.toContain('justfile');
  });

  test('gets another name beside a folder whose path is too long', async () => {
    const agent = await world.start();
    const name = 'd'.repeat(250);
    const makeFolders = `import os; [(os.mkdir("${name}"), os.chdir("${name}")) for _ in range(20)]`;
    const call = run(agent, `echo evil > Makefile; python3 -c '${makeFolders}'`);
    await expect(call).rejects.toMatchObject({
      message: expect.stringContaining('paths are too long') as string,
    });
    expect(await readdir(agent.workspace)).toContain('Makefile.needs-approval');
    // Node's `rm` fails at paths of this length.
    await promisify(execFile)('rm', ['-rf', join(agent.workspace, name)]);
  });

  test('gets a random name if the name with the suffix is too long', async () => {
    const agent = await world.start();
    // 255 bytes, the longest name of a file.
    const name = `Makefile${'.'.repeat(247)}`;
    expect((await run(agent, `echo evil > ${name}`)).notice).toContain('is now');
    expect(await readdir(agent.workspace)).not.toContain(name);
  });
});

describe.skipIf(!hasBubblewrap)('a command in a git repository', () => {
  test.each(['common', 'included', 'worktree'])(
    'cannot add hooks to a configured folder: %s',
    async (kind) => {
      const base = await realpath(await mkdtemp(join(folder, 'hooks-')));
      const workspace = kind === 'worktree' ? join(base, 'tree') : base;
      const identity = ['-c', 'user.name=a', '-c', 'user.email=a@example.com'];
      for (const args of [
        ['init', '-q', '.'],
        ...(kind === 'included'
          ? [
              ['config', '-f', 'shared.gitconf', 'core.hooksPath', 'hk'],
              ['config', 'include.path', '../shared.gitconf'],
            ]
          : [['config', 'core.hooksPath', 'hk']]),
        [...identity, 'commit', '-q', '--allow-empty', '-m', 'first'],
        ...(kind !== 'worktree' ? [] : [['worktree', 'add', '-q', 'tree']]),
      ])
        await promisify(execFile)('git', args, { cwd: base });
      const agent = await world.start({ workspace });
      const { notice } = await run(agent, 'mkdir -p hk; echo evil > hk/pre-commit');
      expect(notice).toContain('hk is now hk.needs-approval');
      await mkdir(join(workspace, 'hk'));
      expect((await run(agent, 'echo evil > hk/pre-commit')).exitCode).not.toBe(0);
    },
  );

  test('commits but cannot change the configuration', async () => {
    const agent = await world.start();
    await run(agent, 'git init -q .', { protected: true });
    const identity = '-c user.name=a -c user.email=a@example.com';
    expect(
      await run(agent, `echo x > f && git add f && git ${identity} commit -qm f && git log --format=%s`),
    ).toMatchObject({ exitCode: 0, output: 'f\n' });
    expect((await run(agent, 'git config core.fsmonitor x')).exitCode).not.toBe(0);
  });
});

describe.skipIf(!hasBubblewrap)('a sandbox with links in its paths', () => {
  let base: string;
  let workspace: string;
  beforeAll(async () => {
    base = await realpath(await mkdtemp(join(tmpdir(), 'townhall-links-')));
    workspace = join(base, 'work');
    for (const path of ['work/tools', 'real/deep', 'secrets', 'out'])
      await mkdir(join(base, path), { recursive: true });
    await writeFile(join(base, 'real', 'open'), 'open to all');
    await writeFile(join(base, 'real', 'deep', 'agent.token'), 'SECRET');
    await writeFile(join(base, 'secrets', 'key'), 'SECRET');
    await writeFile(join(workspace, 'tools', '.env'), 'SECRET');
    await symlink(join(base, 'real'), join(base, 'link'));
    await symlink(workspace, join(base, 'project'));
    await symlink(join(base, 'secrets'), join(base, 'out', 'planted'));
    await symlink(join(base, 'secrets'), join(workspace, 'planted'));
    await symlink(join(workspace, 'planted'), join(base, 'chained'));
  });
  afterAll(() => rm(base, { recursive: true, force: true }));

  async function readOutput(
    text: string,
    {
      read = [],
      ...program
    }: { read?: string[]; folder?: string; settings?: SandboxSettings; command?: string[] },
  ): Promise<string> {
    const hiddenPaths = [join(base, 'real', 'deep')];
    const sandbox = await openSandbox({
      workspace,
      hidden: hiddenPaths,
      read,
      isOff: false,
      path: '/usr/bin',
    });
    const { command, env } = sandbox.prepare({
      command: ['/bin/sh', '-c', `exec 2>&1; ${text}`],
      folder: workspace,
      env: {},
      paths: { hidden: [join(workspace, 'tools', '.env')], readOnly: [] },
      ...program,
    });
    const [file = '', ...args] = command;
    return (
      await promisify(execFile)(file, args, { env }).catch((error: unknown) => error as { stdout: string })
    ).stdout;
  }

  test.each<[string, (path: string) => { read?: string[]; settings?: SandboxSettings }]>([
    ['a path that all programs read', (path) => ({ read: [path] })],
    ['a path that one program reads', (path) => ({ settings: { read: [path] } })],
    ['a path that one program writes', (path) => ({ settings: { write: [path] } })],
  ])('hides secrets behind a link: %s', async (_name, optionsOf) => {
    const text = `cat ${base}/link/open ${base}/link/deep/agent.token ${base}/real/deep/agent.token`;
    const linkOutput = await readOutput(text, optionsOf(join(base, 'link')));
    expect(linkOutput).toContain('open to all');
    expect(linkOutput).not.toContain('SECRET');
  });

  test('hides the secrets of a workspace whose path has a link', async () => {
    const toolsFolder = join(base, 'project', 'tools');
    const output = await readOutput(`cat .env ${toolsFolder}/.env`, { folder: toolsFolder });
    expect(output).toContain('cat: .env: Permission denied\n');
    expect(output).not.toContain('SECRET');
  });

  test.each(['out/planted', 'work/planted', 'project/planted', 'chained'])(
    'does not follow a link that a program could have made: %s',
    async (path) => {
      const settings = { write: [join(base, 'out')], read: [join(base, path)] };
      await expect(readOutput(`cat ${join(base, path)}/key`, { settings })).rejects.toThrow(
        /leads through a link/,
      );
      const program = { settings: { write: [join(base, 'out')] }, folder: join(base, path) };
      expect(await readOutput(`cat key ${join(base, path)}/key`, program)).not.toContain('SECRET');
    },
  );

  test('starts a system program through a link in the workspace', async () => {
    await symlink('/bin/sh', join(workspace, 'python'));
    const command = [join(workspace, 'python'), '-c', 'echo started'];
    expect(await readOutput('', { command })).toBe('started\n');
  });

  test('is unavailable when a read path of all programs is a link in the workspace', async () => {
    const read = [join(workspace, 'planted')];
    const sandbox = await openSandbox({ workspace, hidden: [], read, isOff: false, path: '/usr/bin' });
    expect(sandbox.missing).toMatch(/leads through a link/);
  });
});

describe.skipIf(!hasBubblewrap)('configured programs', () => {
  test('run as services with only their own environment', async () => {
    const command = ['/bin/sh', '-c', `env; ls ${folder} 2>&1; cat /proc/1/comm; exec sleep 300`];
    const agent = await startConfigured({
      services: { probe: { command, env: { OWN: 'yes', HOME: '/own' } } },
    });
    const output = async () => {
      const answer = await agent.client.services.callCommand({ serviceName: 'probe', command: 'output' });
      return (answer.result as { text: string }).text;
    };
    await expect.poll(output).toContain('bwrap');
    expect(await output()).toContain('OWN=yes');
    expect(await output()).toContain('HOME=/own');
    expect(await output()).not.toContain('plugins.json');
    expect(await output()).not.toMatch(/AGENT_|TEST_|USER=/);
  });

  test('cannot be changed by a command', async () => {
    const workspace = join(folder, 'programs');
    await mkdir(workspace, { recursive: true });
    await writeFile(join(workspace, 'serve.sh'), 'exec sleep 300');
    const services = { web: { command: ['/bin/sh', 'serve.sh'] } };
    const agent = await startConfigured({ services }, workspace);
    expect((await run(agent, 'echo evil > serve.sh')).exitCode).not.toBe(0);
    expect(await readFile(join(workspace, 'serve.sh'), 'utf8')).toBe('exec sleep 300');
  });

  test.each([
    ['an option', ['/bin/cat', '--', '--config=./serve.sh']],
    ['a command line', ['/bin/sh', '-c', 'exec sh "./serve.sh" >/dev/null']],
    ['an address', ['/bin/sh', '-c', ':', 'file://WORKSPACE/serve.sh']],
    ['a short option', ['/bin/sh', '-c', ':', '-r./serve.sh']],
    ['a path through a link', ['/bin/sh', 'LINK/serve.sh']],
  ])('cannot be changed where %s names them', async (_name, command) => {
    const workspace = await realpath(await mkdtemp(join(folder, 'named-')));
    await writeFile(join(workspace, 'serve.sh'), 'exec sleep 300');
    await symlink(workspace, `${workspace}-link`);
    const words = command.map((word) =>
      word.replace('WORKSPACE', workspace).replace('LINK', `${workspace}-link`),
    );
    const services = { web: { command: words, autostart: false } };
    const agent = await startConfigured({ services }, workspace);
    await run(agent, 'echo evil > serve.sh; rm -f serve.sh');
    expect(await readFile(join(workspace, 'serve.sh'), 'utf8')).toBe('exec sleep 300');
  });

  test('cannot be replaced through the link that names them', async () => {
    const workspace = await realpath(await mkdtemp(join(folder, 'linked-')));
    await writeFile(join(workspace, 'real.sh'), 'exec sleep 300');
    await symlink('real.sh', join(workspace, 'serve.sh'));
    const services = { web: { command: ['sh', 'serve.sh'] } };
    const agent = await startConfigured({ services }, workspace);
    const { notice } = await run(agent, 'echo evil > real.sh; echo evil > evil.sh; ln -sf evil.sh serve.sh');
    expect(await readFile(join(workspace, 'real.sh'), 'utf8')).toBe('exec sleep 300');
    expect(notice).toContain('serve.sh is now');
  });

  test('get SIGTERM and time to exit', async () => {
    const script = `trap 'echo ended > end; exit 0' TERM; echo ready > ready; while :; do sleep 0.1; done`;
    const agent = await startConfigured({ services: { slow: { command: ['/bin/sh', '-c', script] } } });
    await expect.poll(() => readFile(join(agent.workspace, 'ready'), 'utf8').catch(() => '')).toBe('ready\n');
    await agent.client.services.controlService({ serviceName: 'slow', action: 'stop' });
    expect(await readFile(join(agent.workspace, 'end'), 'utf8')).toBe('ended\n');
  });

  test('run as MCP servers that see only their folders', async () => {
    const program = join(import.meta.dirname, '../../support/mcp-server.ts');
    const sandbox = { read: [join(import.meta.dirname, '../../..')] };
    const probe = { command: process.execPath, args: [program], env: { PROBE: 'yes' }, sandbox };
    const agent = await startConfigured({ mcpServers: { probe, closed: { ...probe, sandbox: {} } } });
    const { result } = await agent.client.plugins.callAction({
      plugin_name: 'mcp',
      action_name: 'probe-environment',
    });
    const variables = (result as { text: string }).text;
    expect(variables.split(' ')).toContain('PROBE');
    expect(variables).not.toMatch(/USER|AGENT_/);
    const { availability } = await agent.client.plugins.checkAvailability({ plugin_name: 'mcp' });
    expect(availability.reasons.join(' ')).toContain('"closed"');
  });
});

describe('a machine without bubblewrap', () => {
  const options = { workspace: '/', hidden: [], read: [], isOff: false, path: '/nowhere' };
  const program = { command: ['true'], folder: '/', env: {}, paths: { hidden: [], readOnly: [] } };

  test('names the fix when it refuses programs', async () => {
    const sandbox = await openSandbox(options);
    expect(sandbox.missing).toMatch(/bwrap is not installed.*--unsafe-shell/);
    expect(() => sandbox.prepare(program)).toThrow(/bwrap is not installed/);
  });

  test('runs a program whose configuration turns the sandbox off', async () => {
    const sandbox = await openSandbox(options);
    expect(sandbox.prepare({ ...program, settings: false })).toMatchObject({
      command: ['true'],
      isSandboxed: false,
    });
  });

  test('runs all programs under --unsafe-shell', async () => {
    const sandbox = await openSandbox({ ...options, isOff: true });
    expect(sandbox.prepare(program)).toMatchObject({ command: ['true'], isSandboxed: false });
  });

  test('reports why shell is unavailable', async () => {
    const agent = await world.start({
      settings: { unsafeShell: false },
      createOptions: { env: { PATH: '/nowhere' } },
    });
    const { availability } = await agent.client.plugins.checkAvailability({ plugin_name: 'shell' });
    expect(availability).toMatchObject({
      available: false,
      reasons: [expect.stringContaining('--unsafe-shell')],
    });
    await expect(run(agent, 'true')).rejects.toMatchObject({ status: 409, code: 'plugin_unavailable' });
  });
});
