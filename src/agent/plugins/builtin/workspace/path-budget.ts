// Bounds the number of mounts of a sandbox. bubblewrap accepts 9,000 arguments, and its start time
// grows with the square of the number of mounts: 1,000 mounts take about two seconds.
import { dirname } from 'node:path';
import { isWithin } from '../../../../kernel/folder.ts';

/**
 * Reduces paths below `root` to at most `max` by replacing paths with a folder that contains them. It
 * picks the smallest folder that is enough, or else the largest folders of the root. Undefined when
 * all of these are not enough.
 */
export function coverPaths(
  paths: readonly string[],
  { root, max }: { root: string; max: number },
): { paths: string[]; folders: string[] } | undefined {
  if (paths.length <= max) return { paths: [...paths], folders: [] };
  const counts = countBelow(paths, root);
  const folders: string[] = [];
  let excess = paths.length - max;
  const rootCounts = [...counts].filter(([folder]) => dirname(folder) === root).sort(([, a], [, b]) => b - a);
  for (const [largest, count] of rootCounts) {
    // A folder takes the place of `count` paths.
    const isEnough = count - 1 >= excess;
    folders.push(
      isEnough ? smallestFolder(counts, { minCount: excess + 1, excludedFolders: folders }) : largest,
    );
    excess -= count - 1;
    if (isEnough) break;
  }
  if (excess > 0) return undefined;
  const coveredFolders = new Set(folders);
  const uncoveredPaths = paths.filter(
    (path) => !foldersOf(path, root).some((folder) => coveredFolders.has(folder)),
  );
  return { paths: [...folders, ...uncoveredPaths], folders };
}

/** The folders between the path and the root. */
function foldersOf(path: string, root: string): string[] {
  const folders: string[] = [];
  for (let folder = dirname(path); isWithin(folder, root) && folder !== root; folder = dirname(folder))
    folders.push(folder);
  return folders;
}

/** The number of paths below each folder between them and the root. */
function countBelow(paths: readonly string[], root: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const path of paths)
    for (const folder of foldersOf(path, root)) counts.set(folder, (counts.get(folder) ?? 0) + 1);
  return counts;
}

/**
 * The folder with the fewest paths, but at least `minCount`, outside of `excludedFolders`; of equal
 * folders the one with the longest path.
 */
function smallestFolder(
  counts: ReadonlyMap<string, number>,
  { minCount, excludedFolders }: { minCount: number; excludedFolders: readonly string[] },
): string {
  const [smallest = ''] = [...counts]
    .filter(
      ([folder, size]) =>
        size >= minCount && !excludedFolders.some((excludedFolder) => isWithin(folder, excludedFolder)),
    )
    .sort(([a, sizeOfA], [b, sizeOfB]) => sizeOfA - sizeOfB || b.length - a.length)
    .map(([folder]) => folder);
  return smallest;
}
