// A search for a text through the files of the workspace. The rule it keeps: it ends, however much lies there, and it
// follows no link, so that a loop of folders is none.
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
  /** Whether there was more than was looked at or is shown. */
  truncated?: true;
}

const mostMatches = 200;
const mostFiles = 5_000;
const mostBytes = 64 * 1024 * 1024;
const mostEntries = 5_000;
const largestFile = 1024 * 1024;
const longestLine = 300;
// What is made by tools and not by hand; a model that wants it can name the folder.
const leftOut: ReadonlySet<string> = new Set(['node_modules', '.git', '.hg', '.svn']);

export async function searchWorkspace(workspace: Workspace, request: SearchRequest): Promise<SearchResult> {
  const wanted = fold(request.text, request.ignoreCase);
  const result: SearchResult = { matches: [], files: 0 };
  let bytes = 0;

  function isFull(): boolean {
    if (result.matches.length < mostMatches && result.files < mostFiles && bytes < mostBytes) return false;
    result.truncated = true;
    return true;
  }

  async function searchFile(path: string): Promise<void> {
    const content = await workspace.read(path, largestFile);
    result.files += 1;
    bytes += content.length;
    if (content.includes(0) || !isUtf8(content)) return;
    const text = content.toString('utf8');
    if (searchText(fold(text, request.ignoreCase), wanted) < 0) return;
    for (const [index, line] of text.split('\n').entries()) {
      if (searchText(fold(line, request.ignoreCase), wanted) < 0) continue;
      result.matches.push({ path, line: index + 1, text: line.slice(0, longestLine).toWellFormed() });
      if (isFull()) return;
    }
  }

  async function searchFolder(folder: string): Promise<void> {
    const { entries, truncated } = await workspace.list(folder, mostEntries);
    if (truncated) result.truncated = true;
    for (const { name, type } of entries) {
      request.signal.throwIfAborted();
      if (isFull()) return;
      const path = folder === '.' ? name : `${folder}/${name}`;
      // One that is too large, unreadable or gone meanwhile does not end the search.
      if (type === 'file') await searchFile(path).catch(unlessAborted);
      else if (type === 'folder' && !leftOut.has(name)) await searchFolder(path).catch(unlessAborted);
    }
  }

  function unlessAborted(error: unknown): void {
    if (!(error instanceof Problem)) throw error;
    result.truncated = true;
  }

  const listed = await workspace.list(request.folder, 1).catch((error: unknown) => error);
  if (!(listed instanceof Error)) await searchFolder(trimmed(request.folder));
  else await searchFile(trimmed(request.folder));
  return result;
}

function fold(text: string, ignoreCase: boolean): string {
  return ignoreCase ? text.toLowerCase() : text;
}

function trimmed(path: string): string {
  return path.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '') || '.';
}
