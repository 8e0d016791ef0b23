// Files and folders that the configuration of a repository names: `core.hooksPath`, included files,
// scripts of filters. git runs them or reads them as configuration, so they are protected like hooks:
// otherwise the agent could write a file that git later runs for the operator.
import { lstat, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseGitConfig, type GitSetting } from './git-config-syntax.ts';
import { namedFiles } from './protected-files.ts';

const maxConfigBytes = 256 * 1024;
const maxFiles = 20;
// The values of these keys do not name programs, even if a file of that name exists.
const plainKeys: ReadonlySet<string> = new Set([
  'url',
  'pushurl',
  'remote',
  'merge',
  'fetch',
  'push',
  'name',
  'email',
  'worktree',
]);
// The key of `include.path` and `includeIf.*.path`, which name further configuration files.
const includeKey = 'path';
// The values of these keys are paths, even if nothing exists there yet.
const pathKeys: ReadonlySet<string> = new Set(['hookspath', includeKey]);

/**
 * The absolute paths that a repository's configuration names. Those of `core.hooksPath` and of includes
 * need not exist; a word of another key's value counts only if it names an existing file. `gitPath` is
 * the folder `.git` or, in a worktree or a submodule, the file `.git`.
 */
export async function pathsOfConfig(gitPath: string): Promise<string[]> {
  const top = dirname(gitPath);
  const paths = new Set<string>();
  const files = await configFiles(gitPath);
  // The loop also reads the included files that it appends.
  for (let index = 0; index < Math.min(files.length, maxFiles); index += 1) {
    const file = files[index] as string;
    for (const { key, value } of parseProgramSettings(await readSmall(file))) {
      // git resolves an included file against the folder of the config file, and other paths against the
      // repository. Protect both for every key: an extra path does no harm, a missing one would.
      const candidates = namedFiles(value).flatMap((name) => [
        resolveFrom(top, name),
        resolveFrom(dirname(file), name),
      ]);
      for (const path of candidates) if (pathKeys.has(key) || (await isExistingFile(path))) paths.add(path);
      if (key === includeKey) files.push(...candidates);
    }
  }
  return [...paths];
}

/** The settings of a config file that may name a program or a file. */
function parseProgramSettings(config: string): GitSetting[] {
  return parseGitConfig(config).filter(({ key }) => !plainKeys.has(key));
}

/** Like `resolve`; git expands `~/` to the home folder. */
function resolveFrom(folder: string, name: string): string {
  return name.startsWith('~/') ? join(homedir(), name.slice(2)) : resolve(folder, name);
}

/** The config files of a repository. If `.git` is a file, it names the folder that contains them. */
async function configFiles(gitPath: string): Promise<string[]> {
  const pointer = /^gitdir:\s*(.+)$/m.exec(await readSmall(gitPath))?.[1]?.trim();
  const folder = pointer === undefined ? gitPath : resolve(dirname(gitPath), pointer);
  const common = (await readSmall(join(folder, 'commondir'))).trim();
  const folders = new Set([folder, ...(common === '' ? [] : [resolve(folder, common)])]);
  return [...folders].flatMap((folder) => [join(folder, 'config'), join(folder, 'config.worktree')]);
}

/** The content of a small plain file; empty for anything else. */
async function readSmall(path: string): Promise<string> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() !== true || stats.size > maxConfigBytes) return '';
  return readFile(path, 'utf8').catch(() => '');
}

// Whether anything but a folder exists there, such as a file or a link. A folder is no program: an alias
// such as `!eslint src` must not put all of `src` under protection.
async function isExistingFile(path: string): Promise<boolean> {
  return lstat(path).then(
    (stats) => !stats.isDirectory(),
    () => false,
  );
}
