// All files of a snapshot by path, and the difference between two snapshots.

export interface FileState {
  hash: string;
  /** The permission bits. */
  mode: number;
}

export interface Tree {
  files: ReadonlyMap<string, FileState>;
  /** Paths without a content in the snapshot: links, files that are too large or cannot be read. */
  skippedPaths: ReadonlySet<string>;
  /** The text of each `.gitignore` by its folder. */
  ignore: ReadonlyMap<string, string>;
}

/** Null stands for a file that does not exist. */
export interface FileChange {
  path: string;
  before: FileState | null;
  after: FileState | null;
}

/**
 * The changes in the order of their paths. A path that one of the trees skipped is not compared,
 * since its former content is unknown.
 */
export function diffTrees(before: Tree, after: Tree): FileChange[] {
  const paths = [...new Set([...before.files.keys(), ...after.files.keys()])].sort();
  return paths.flatMap((path) => {
    if (isSkipped(before, path) || isSkipped(after, path)) return [];
    const change = { path, before: before.files.get(path) ?? null, after: after.files.get(path) ?? null };
    return isSame(change.before, change.after) ? [] : [change];
  });
}

/** Whether the snapshot skipped the path or a folder above it. */
function isSkipped({ skippedPaths }: Tree, path: string): boolean {
  if (skippedPaths.size === 0) return false;
  for (let end = path.length; end > 0; end = path.lastIndexOf('/', end - 1))
    if (skippedPaths.has(path.slice(0, end))) return true;
  return false;
}

export function isSame(left: FileState | null, right: FileState | null): boolean {
  return left?.hash === right?.hash && left?.mode === right?.mode;
}

interface StoredTree {
  files: [path: string, hash: string, mode: number][];
  skippedPaths: string[];
  ignore: [folder: string, text: string][];
}

export function writeTree({ files, skippedPaths, ignore }: Tree): Buffer {
  const storedTree: StoredTree = {
    files: [...files].map(([path, { hash, mode }]) => [path, hash, mode]),
    skippedPaths: [...skippedPaths],
    ignore: [...ignore],
  };
  return Buffer.from(JSON.stringify(storedTree));
}

export function readTree(content: Buffer): Tree {
  const { files, skippedPaths, ignore } = JSON.parse(content.toString('utf8')) as StoredTree;
  return {
    files: new Map(files.map(([path, hash, mode]) => [path, { hash, mode }])),
    skippedPaths: new Set(skippedPaths),
    ignore: new Map(ignore),
  };
}
