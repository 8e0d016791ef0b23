// The packed tarballs in an empty project, as a user installs them, and the Node versions to try
// them with.
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const root = path.join(import.meta.dirname, '../..');

export interface Installation {
  /** The project's folder. */
  folder: string;
  tarballs: string;
  remove(): void;
}

/** Packs and installs; other packages come from npm's cache or its registry. */
export async function install(): Promise<Installation> {
  const temporaryFolder = mkdtempSync(path.join(tmpdir(), 'townhall-installed-'));
  const tarballs = path.join(temporaryFolder, 'tarballs');
  const folder = path.join(temporaryFolder, 'project');
  mkdirSync(folder);
  await run(process.execPath, [path.join(root, 'scripts/pack.ts'), '--output', tarballs], {
    timeout: 600_000,
  });
  writeFileSync(
    path.join(folder, 'package.json'),
    JSON.stringify({ name: 'project', private: true, type: 'module' }),
  );
  await npm(
    [
      'install',
      ...readdirSync(tarballs)
        .filter((name) => name.endsWith('.tgz'))
        .map((name) => path.join(tarballs, name)),
    ],
    folder,
  );
  return { folder, tarballs, remove: () => rmSync(temporaryFolder, { recursive: true, force: true }) };
}

/** The folder of a Node version; undefined, with a warning, when it cannot be installed. */
export async function nodeFolder(major: number): Promise<string | undefined> {
  if (Number(process.versions.node.split('.')[0]) === major) return path.dirname(process.execPath);
  if (major === 20) {
    const systemNode = '/usr/bin/node';
    const version = existsSync(systemNode) ? (await run(systemNode, ['--version'])).stdout : '';
    if (version.startsWith('v20.')) return path.dirname(systemNode);
    console.warn(`SKIPPED: there is no Node 20 at ${systemNode}, so the clients are not tried on it`);
    return undefined;
  }
  // The folder stays between runs, since it is a hundred megabytes.
  const folder = path.join(tmpdir(), `townhall-node-${major}`);
  const program = path.join(folder, 'node_modules/node/bin/node');
  try {
    if (!existsSync(program)) {
      mkdirSync(folder, { recursive: true });
      writeFileSync(
        path.join(folder, 'package.json'),
        JSON.stringify({ private: true, allowScripts: { node: true } }),
      );
      await npm(['install', `node@${major}`], folder);
    }
    await run(program, ['--version']);
    return path.dirname(program);
  } catch (error) {
    console.warn(
      `SKIPPED: Node ${major} cannot be installed from npm, so the packages are not tried on it ` +
        `(${(error as Error).message.split('\n')[0]})`,
    );
    return undefined;
  }
}

async function npm(parameters: readonly string[], folder: string): Promise<void> {
  await run(
    'npm',
    [
      ...parameters,
      '--no-audit',
      '--no-fund',
      '--no-update-notifier',
      '--prefer-offline',
      '--loglevel',
      'error',
    ],
    { cwd: folder, timeout: 600_000 },
  );
}

/**
 * The five calls of the README as a shell script, for the folder in which the local edition runs.
 */
export function readmeCalls({ gateway, agent }: { gateway: string; agent: string }): string {
  const [, calls] =
    /## Five calls[\s\S]*?```sh\n([\s\S]*?)\n```/.exec(readFileSync(path.join(root, 'README.md'), 'utf8')) ??
    [];
  if (calls === undefined) throw new Error('the README has no five calls');
  return calls.replaceAll('http://127.0.0.1:43127', gateway).replaceAll('http://127.0.0.1:5314', agent);
}

export interface StartedProgram {
  /** Resolves with the match once the output contains it. */
  waitFor(pattern: RegExp, timeoutMs?: number): Promise<RegExpMatchArray>;
  /** Sends Ctrl-C and returns the exit code or the signal's name. */
  stop(): Promise<number | string>;
  screen(): string;
}

/** Starts a program in a folder. Its environment has `env`, HOME, and a PATH with `node` first in it. */
export function start(
  command: string,
  args: readonly string[],
  { cwd, node, env = {} }: { cwd: string; node?: string; env?: Record<string, string> },
): StartedProgram {
  const child: ChildProcess = spawn(command, args, {
    cwd,
    env: { PATH: `${node === undefined ? '' : `${node}:`}/usr/bin:/bin`, HOME: cwd, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let screen = '';
  const listeners = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (piece: Buffer) => {
      screen += piece.toString('utf8');
      for (const listener of listeners) listener();
    });
  const exit = new Promise<number | string>((resolve) =>
    child.on('close', (code, signal) => resolve(code ?? signal ?? 'unknown')),
  );
  return {
    screen: () => screen,
    waitFor: (pattern, timeoutMs = 120_000) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`${String(pattern)} did not appear in:\n${screen}`)),
          timeoutMs,
        );
        const check = () => {
          const match = pattern.exec(screen);
          if (match === null) return;
          clearTimeout(timer);
          listeners.delete(check);
          resolve(match);
        };
        listeners.add(check);
        void exit.then((code) => {
          clearTimeout(timer);
          reject(new Error(`ended with ${code} before ${String(pattern)}:\n${screen}`));
        });
        check();
      }),
    async stop() {
      const hasEnded = child.exitCode !== null || child.signalCode !== null;
      // A terminal sends the signal to the whole process group.
      if (child.pid !== undefined && !hasEnded) process.kill(-child.pid, 'SIGINT');
      return exit;
    },
  };
}
