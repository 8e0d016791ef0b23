// The plugin `files` over a folder of its own, for tests of its actions.
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import {
  callAction,
  createRegistry,
  files,
  openWorkspace,
  type ActionOutcome,
  type Tool,
} from '../../src/agent/plugins/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from './databases.ts';

export interface FilesPlugin {
  folder: string;
  tool(action: string): Tool;
  call(action: string, input: unknown): Promise<ActionOutcome>;
  /** The text of a file; null when there is none. */
  text(path: string): Promise<string | null>;
  put(files: Readonly<Record<string, string>>): Promise<void>;
  remove(): Promise<void>;
}

export async function openFilesPlugin(hiddenPaths: readonly string[] = []): Promise<FilesPlugin> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'townhall-files-')));
  const workspace = await openWorkspace({ folder, hidden: hiddenPaths.map((path) => join(folder, path)) });
  const registry = createRegistry([files(() => workspace)]);
  const tool = (action: string): Tool => {
    const existing = registry.tool(`files_${action}`);
    if (!existing) throw new Error(`There is no files_${action}.`);
    return existing;
  };
  return {
    folder,
    tool,
    call: (action, input) =>
      callAction({
        tool: tool(action),
        input,
        workspace: folder,
        signal: new AbortController().signal,
        timeoutMs: 20_000,
        clock: systemClock,
        log: silentLog,
      }),
    text: (path) => readFile(join(folder, path), 'utf8').catch(() => null),
    async put(contents) {
      for (const [path, text] of Object.entries(contents)) {
        await mkdir(dirname(join(folder, path)), { recursive: true });
        await writeFile(join(folder, path), text);
      }
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
