// Searches the files of the workspace for a text or a regular expression, and their paths for a glob. Limits
// on matches, files and bytes bound every search; it follows no links, so folders cannot form a loop.
import { isUtf8 } from 'node:buffer';
import { nextTurn } from '../../../../kernel/async.ts';
import { compileGlob, matchesGlob } from '../../../../kernel/glob.ts';
import { Problem } from '../../../../kernel/problem.ts';
import { searchText } from '../../../../kernel/text-search.ts';
import { startOfText } from '../../../../kernel/start-of-text.ts';
import { refusal } from '../../../refusal.ts';
import { openPatternSearch } from './pattern-search.ts';
import type { Workspace } from '../workspace/workspace.ts';

export interface SearchRequest {
  /** Either the text itself or the source of a regular expression; each line is matched by itself. */
  query: { text: string } | { pattern: string };
  /** A folder or a file, relative to the workspace. */
  folder: string;
  /** A glob; of a folder, only files whose path below it matches are searched. */
  files: string | undefined;
  ignoreCase: boolean;
  signal: AbortSignal;
}

export interface SearchResult {
  matches: { path: string; line: number; text: string }[];
  /** How many files were read. */
  files: number;
  /** Whether a limit was reached or a file could not be read. */
  truncated?: true;
}

export interface GlobResult {
  paths: string[];
  /** Whether a limit was reached or a folder could not be read. */
  truncated?: true;
}

/** The lines of a text that match, counted from 1, at most `limit`. */
type FindLines = (
  text: string,
  limit: number,
) => { line: number; text: string }[] | Promise<{ line: number; text: string }[]>;

const maxMatches = 200;
const maxFiles = 5_000;
const maxBytes = 64 * 1024 * 1024;
const maxEntries = 5_000;
const maxFileBytes = 1024 * 1024;
const maxLineLength = 300;
const maxPaths = 1_000;
const maxVisited = 100_000;
// A model's glob takes up to ten milliseconds for a long name.
const maxTurnMs = 20;
// Generated folders. A model that needs one can name it as the folder of the search.
const skippedFolders: ReadonlySet<string> = new Set(['node_modules', '.git', '.hg', '.svn']);

/** Throws a Problem for an invalid pattern and for one that takes too long. */
export async function searchWorkspace(workspace: Workspace, request: SearchRequest): Promise<SearchResult> {
  const { query, ignoreCase } = request;
  if ('text' in query) return searchFiles(workspace, request, findText(query.text, ignoreCase));
  const search = openPatternSearch({ source: query.pattern, ignoreCase });
  try {
    return await searchFiles(workspace, request, search.find);
  } finally {
    await search.close();
  }
}

/** The paths of files below the folder that match the glob, by name. */
export async function findPaths(
  workspace: Workspace,
  { pattern, folder, signal }: { pattern: string; folder: string; signal: AbortSignal },
): Promise<GlobResult> {
  const result: GlobResult = { paths: [] };
  const glob = compile(pattern);
  const isTruncated = await visitFiles(workspace, normalize(folder), {
    signal,
    isFull: () => result.paths.length >= maxPaths,
    visit(path, below) {
      if (matchesGlob(glob, below)) result.paths.push(path);
    },
  });
  if (isTruncated) result.truncated = true;
  return result;
}

function findText(text: string, ignoreCase: boolean): FindLines {
  const needle = fold(text, ignoreCase);
  return (content, limit) => {
    if (searchText(fold(content, ignoreCase), needle) < 0) return [];
    const lines: { line: number; text: string }[] = [];
    for (const [index, line] of content.split(/\r?\n/).entries()) {
      if (searchText(fold(line, ignoreCase), needle) < 0) continue;
      lines.push({ line: index + 1, text: line });
      if (lines.length === limit) break;
    }
    return lines;
  };
}

async function searchFiles(
  workspace: Workspace,
  { folder, files, signal }: SearchRequest,
  find: FindLines,
): Promise<SearchResult> {
  const result: SearchResult = { matches: [], files: 0 };
  const glob = files === undefined ? undefined : compile(files);
  let bytes = 0;

  async function searchFile(path: string): Promise<void> {
    const content = await workspace.read(path, maxFileBytes);
    result.files += 1;
    bytes += content.length;
    if (content.includes(0) || !isUtf8(content)) return;
    const remainingCount = maxMatches - result.matches.length;
    // One more line than fits shows whether the limit leaves out any.
    const lines = await find(content.toString('utf8'), remainingCount + 1);
    if (lines.length > remainingCount) result.truncated = true;
    for (const { line, text } of lines.slice(0, remainingCount))
      result.matches.push({ path, line, text: startOfText(text, maxLineLength) });
  }

  const start = normalize(folder);
  const isFolder = await workspace.list(start, 1).then(
    () => true,
    () => false,
  );
  if (!isFolder) {
    await searchFile(start);
    return result;
  }
  const isTruncated = await visitFiles(workspace, start, {
    signal,
    isFull: () => result.matches.length >= maxMatches || result.files >= maxFiles || bytes >= maxBytes,
    async visit(path, below) {
      if (glob === undefined || matchesGlob(glob, below)) await searchFile(path);
    },
  });
  if (isTruncated) result.truncated = true;
  return result;
}

interface Visitor {
  signal: AbortSignal;
  isFull(): boolean;
  /** `below` is the path relative to the folder of the visit. */
  visit(path: string, below: string): Promise<void> | void;
}

/** Whether something was left out: a file or folder that cannot be read, or what follows after a limit. */
async function visitFiles(workspace: Workspace, start: string, visitor: Visitor): Promise<boolean> {
  let isTruncated = false;
  let visitedCount = 0;
  let turnStartedMs = performance.now();
  const isFull = (): boolean => {
    if (!visitor.isFull() && visitedCount < maxVisited) return false;
    isTruncated = true;
    return true;
  };

  async function visitFolder(folder: string, pathBelow: string): Promise<void> {
    const { entries, truncated } = await workspace.list(folder, maxEntries);
    if (truncated) isTruncated = true;
    for (const { name, type } of entries) {
      if (performance.now() - turnStartedMs > maxTurnMs) {
        await nextTurn();
        turnStartedMs = performance.now();
      }
      visitor.signal.throwIfAborted();
      if (isFull()) return;
      visitedCount += 1;
      const path = folder === '.' ? name : `${folder}/${name}`;
      const belowPath = pathBelow === '' ? name : `${pathBelow}/${name}`;
      // A file that is too large, unreadable or deleted meanwhile does not end the search.
      if (type === 'file') await skipRefused(async () => visitor.visit(path, belowPath));
      else if (type === 'folder' && !skippedFolders.has(name))
        await skipRefused(() => visitFolder(path, belowPath));
    }
  }

  async function skipRefused(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem) || error.param !== 'path') throw error;
      isTruncated = true;
    }
  }

  await visitFolder(start, '');
  return isTruncated;
}

function compile(pattern: string): ReturnType<typeof compileGlob> {
  try {
    return compileGlob(pattern);
  } catch (cause) {
    throw refusal((cause as Error).message, cause);
  }
}

function fold(text: string, ignoreCase: boolean): string {
  return ignoreCase ? text.toLowerCase() : text;
}

function normalize(path: string): string {
  return path.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '') || '.';
}
