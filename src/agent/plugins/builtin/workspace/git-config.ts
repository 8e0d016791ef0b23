// Files and folders of a workspace that the configuration of a repository names: `core.hooksPath`,
// included files, scripts of filters. git runs or reads them as it does its own hooks and config.
import { lstat, readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { namedFiles } from './protected-files.ts';

const maxConfigBytes = 256 * 1024;
const maxFiles = 20;
// Their values name no program, although a file of the same name may exist.
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
const pathKeys: ReadonlySet<string> = new Set(['hookspath', 'path']);

/** Absolute paths. Those of keys that may have other values are left out unless they are files. */
export async function pathsOfConfig(gitPath: string): Promise<string[]> {
  const top = dirname(gitPath);
  const paths = new Set<string>();
  const files = await configFiles(gitPath);
  // The loop also reads the included files that it appends.
  for (let index = 0; index < Math.min(files.length, maxFiles); index += 1) {
    const file = files[index] as string;
    for (const { key, value } of settingsOf(await readSmall(file))) {
      // git resolves included files from the folder of the config, all others from that of the repository.
      const candidates = namedFiles(value).flatMap((name) => [
        resolve(top, name),
        resolve(dirname(file), name),
      ]);
      for (const path of candidates) if (pathKeys.has(key) || (await isFile(path))) paths.add(path);
      if (key === 'path') files.push(...candidates);
    }
  }
  return [...paths];
}

function settingsOf(config: string): { key: string; value: string }[] {
  return config.split('\n').flatMap((line) => {
    const [, key, value] = /^\s*(?:\[.*\]\s*)?([A-Za-z][\w-]*)\s*=\s*(.*)$/.exec(line) ?? [];
    if (key === undefined || value === undefined || plainKeys.has(key.toLowerCase())) return [];
    return [{ key: key.toLowerCase(), value }];
  });
}

/**
 * The config files of a repository: `gitPath` is its folder, or the file `.git` in a worktree,
 * which names the folder.
 */
async function configFiles(gitPath: string): Promise<string[]> {
  const pointer = /^gitdir:\s*(.+)$/m.exec(await readSmall(gitPath))?.[1]?.trim();
  const folder = pointer === undefined ? gitPath : resolve(dirname(gitPath), pointer);
  const common = (await readSmall(join(folder, 'commondir'))).trim();
  const folders = new Set([folder, ...(common === '' ? [] : [resolve(folder, common)])]);
  return [...folders].flatMap((folder) => [join(folder, 'config'), join(folder, 'config.worktree')]);
}

/** Empty for anything but a small plain file. */
async function readSmall(path: string): Promise<string> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() !== true || stats.size > maxConfigBytes) return '';
  return readFile(path, 'utf8').catch(() => '');
}

// A folder is no program: an alias such as `!eslint src` does not protect all sources.
async function isFile(path: string): Promise<boolean> {
  return lstat(path).then(
    (stats) => !stats.isDirectory(),
    () => false,
  );
}
