// Searches the files of the workspace for a text. Limits on matches, files and bytes end it in any
// workspace; it follows no link, so folders cannot form a loop.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { searchText } from '../../../kernel/text-search.ts';
import type { Workspace } from './workspace.ts';

export interface SearchRequest {
  text: string;
  /** A folder or a file, relative to the workspace. */
  folder: string;
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

const maxMatches = 200;
const maxFiles = 5_000;
const maxBytes = 64 * 1024 * 1024;
const maxEntries = 5_000;
const maxFileBytes = 1024 * 1024;
const maxLineLength = 300;
// Generated folders. A model that needs one can name it as the folder of the search.
const skippedFolders: ReadonlySet<string> = new Set(['node_modules', '.git', '.hg', '.svn']);

export async function searchWorkspace(workspace: Workspace, request: SearchRequest): Promise<SearchResult> {
  const needle = fold(request.text, request.ignoreCase);
  const result: SearchResult = { matches: [], files: 0 };
  let bytes = 0;

  function isFull(): boolean {
    if (result.matches.length < maxMatches && result.files < maxFiles && bytes < maxBytes) return false;
    result.truncated = true;
    return true;
  }

  async function searchFile(path: string): Promise<void> {
    const content = await workspace.read(path, maxFileBytes);
    result.files += 1;
    bytes += content.length;
    if (content.includes(0) || !isUtf8(content)) return;
    const text = content.toString('utf8');
    if (searchText(fold(text, request.ignoreCase), needle) < 0) return;
    for (const [index, line] of text.split('\n').entries()) {
      if (searchText(fold(line, request.ignoreCase), needle) < 0) continue;
      result.matches.push({ path, line: index + 1, text: line.slice(0, maxLineLength).toWellFormed() });
      if (isFull()) return;
    }
  }

  async function searchFolder(folder: string): Promise<void> {
    const { entries, truncated } = await workspace.list(folder, maxEntries);
    if (truncated) result.truncated = true;
    for (const { name, type } of entries) {
      request.signal.throwIfAborted();
      if (isFull()) return;
      const path = folder === '.' ? name : `${folder}/${name}`;
      // A file that is too large, unreadable or deleted meanwhile does not end the search.
      if (type === 'file') await searchFile(path).catch(skipRefused);
      else if (type === 'folder' && !skippedFolders.has(name)) await searchFolder(path).catch(skipRefused);
    }
  }

  function skipRefused(error: unknown): void {
    if (!(error instanceof Problem)) throw error;
    result.truncated = true;
  }

  const isFolder = await workspace.list(request.folder, 1).then(
    () => true,
    () => false,
  );
  await (isFolder ? searchFolder : searchFile)(normalize(request.folder));
  return result;
}

function fold(text: string, ignoreCase: boolean): string {
  return ignoreCase ? text.toLowerCase() : text;
}

function normalize(path: string): string {
  return path.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '') || '.';
}
