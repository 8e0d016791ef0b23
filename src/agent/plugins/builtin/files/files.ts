// The plugin `files`: lists, searches, reads, writes and edits text files of the workspace. The
// workspace decides which paths may be used; this file defines the actions and their limits.
import { isUtf8 } from 'node:buffer';
import { createSerializer } from '../../../../kernel/async.ts';
import { refusal } from '../../../refusal.ts';
import {
  definePlugin,
  everyCaller,
  type Action,
  type PermissionContext,
  type Plugin,
  type ToolPermission,
} from '../../definition/plugin.ts';
import {
  applyPatch,
  patchedPaths,
  replaceText,
  sizeRefusal,
  type PatchInput,
  type Replacement,
} from './patch.ts';
import { inputs, maxReadBytes } from './inputs.ts';
import { maxScannedBytes, readLines } from './read-lines.ts';
import { findPaths, searchWorkspace } from './search.ts';
import type { Workspace, WorkspaceAt } from '../workspace/workspace.ts';

const maxEntries = 1000;
const defaultLines = 2_000;

type FilesInputs = {
  list: { path?: string };
  glob: { pattern: string; path?: string };
  search: SearchInput;
  read: ReadInput;
  write: { path: string; content: string };
  edit: Replacement;
  patch: PatchInput;
};

interface SearchInput {
  text?: string;
  pattern?: string;
  path?: string;
  files?: string;
  ignoreCase?: boolean;
}

interface ReadInput {
  path: string;
  offset?: number;
  limit?: number;
}

type FilesActions<Name extends keyof FilesInputs> = { [Key in Name]: Action<FilesInputs[Key]> };

/** The workspace of a call. */
type WorkspaceOf = (call: PermissionContext) => Workspace;

/** The plugin; each call works in the workspace of its session. */
export function files(workspaceAt: WorkspaceAt): Plugin {
  const workspaceOf: WorkspaceOf = ({ workspace }) => workspaceAt(workspace);
  return definePlugin<FilesInputs>({
    name: 'files',
    title: 'Files',
    description: 'Lists, searches, reads, writes and edits the text files of the workspace.',
    actions: { ...readingActions(workspaceOf), ...changingActions(workspaceOf) },
  });
}

function readingActions(workspaceOf: WorkspaceOf): FilesActions<'list' | 'glob' | 'search' | 'read'> {
  // One search at a time: a search for a regular expression starts a thread.
  const serializeSearch = createSerializer();
  return {
    list: {
      description:
        'Lists one folder of the workspace: names, kinds and sizes. Without a path, it lists the workspace itself.',
      ...everyCaller,
      readOnly: true,
      permissions: async ({ path = '.' }, call) => [{ path: await workspaceOf(call).resolve(path) }],
      input: inputs.list,
      async run({ path = '.' }, call) {
        const { entries, truncated } = await workspaceOf(call).list(path, maxEntries);
        return { path, entries, ...(truncated ? { truncated } : {}) };
      },
    },
    glob: {
      description:
        'Finds files whose paths match a glob, below a folder if one is given. Folders such ' +
        'as node_modules and .git are left out.',
      ...everyCaller,
      readOnly: true,
      permissions: ({ path = '.' }, call) => globPermissions(workspaceOf(call), path),
      input: inputs.glob,
      run: ({ pattern, path: folder = '.' }, call) =>
        findPaths(workspaceOf(call), { pattern, folder, signal: call.signal }),
    },
    search: {
      description:
        'Finds lines that contain a text or match a regular expression in the text files of the ' +
        'workspace, below a folder if one is given. Folders such as node_modules and .git are ' +
        'left out.',
      ...everyCaller,
      readOnly: true,
      permissions: async ({ path = '.' }, call) => [
        { path: await workspaceOf(call).resolve(path), includesBelow: true },
      ],
      input: inputs.search,
      run: (search, call) => serializeSearch(() => searchFor(workspaceOf(call), search, call.signal)),
    },
    read: {
      description:
        'Reads a text file of the workspace of at most 256 KiB; with `offset` or `limit`, some of ' +
        'the lines of a file of any size.',
      ...everyCaller,
      readOnly: true,
      permissions: async ({ path }, call) => [{ path: await workspaceOf(call).resolve(path) }],
      input: inputs.read,
      run: (input, call) => readFile(workspaceOf(call), input),
    },
  };
}

function changingActions(workspaceOf: WorkspaceOf): FilesActions<'write' | 'edit' | 'patch'> {
  // One change at a time: the tools of a step run concurrently, and an edit reads before it writes.
  const serialize = createSerializer();
  return {
    write: {
      description:
        'Writes a text file of the workspace as a whole; creates the file and its folders if they do not exist.',
      ...everyCaller,
      needsApproval: ({ path }, _settings, call) => workspaceOf(call).isProtected(path),
      permissions: ({ path }, call) => writePermissions(workspaceOf(call), path),
      input: inputs.write,
      run: ({ path, content }, call) =>
        serialize(async () => {
          const bytes = Buffer.from(content, 'utf8');
          const { created } = await workspaceOf(call).write(path, bytes);
          return { path, bytes: bytes.length, created };
        }),
    },
    edit: {
      description:
        'Replaces a part of a text file. The file must contain the old text exactly as given, ' +
        'and only once unless `all` is true.',
      ...everyCaller,
      needsApproval: ({ path }, _settings, call) => workspaceOf(call).isProtected(path),
      permissions: ({ path }, call) => writePermissions(workspaceOf(call), path),
      input: inputs.edit,
      run: (edit, call) => serialize(() => editFile(workspaceOf(call), edit)),
    },
    patch: {
      description:
        'Changes several text files at once, by exact replacements or by a unified diff. ' +
        'If one of the changes does not fit, none is made.',
      ...everyCaller,
      needsApproval: (input, _settings, call) =>
        patchedPaths(input).some((path) => workspaceOf(call).isProtected(path)),
      permissions: (input, call) => patchPermissions(workspaceOf(call), input),
      input: inputs.patch,
      run: (input, call) =>
        serialize(() =>
          applyPatch(input, {
            workspace: workspaceOf(call),
            readText: async (path) => (await readText(workspaceOf(call), path)).text,
            maxBytes: maxReadBytes,
          }),
        ),
    },
  };
}

// Writes and removals follow no links, so the path of the call is the path that is changed. The rules are
// decided before `needsApproval`, which therefore sees the updated protection.
async function writePermissions(workspace: Workspace, path: string): Promise<ToolPermission[]> {
  await workspace.updateProtected();
  return [{ path, isProtected: workspace.isProtected(path) }];
}

// A glob reveals file names as `list` does, so a rule about `files.list` applies to it as well.
async function globPermissions(workspace: Workspace, folder: string): Promise<ToolPermission[]> {
  const path = await workspace.resolve(folder);
  return [
    { path, includesBelow: true },
    { right: 'list', path, includesBelow: true },
  ];
}

// A patch does what `write` and `edit` do, so rules about these apply to it as well.
async function patchPermissions(workspace: Workspace, input: PatchInput): Promise<ToolPermission[]> {
  await workspace.updateProtected();
  return patchedPaths(input).flatMap((path) => {
    const isProtected = workspace.isProtected(path);
    return [
      { path, isProtected },
      { right: 'write', path, isProtected },
      { right: 'edit', path, isProtected },
    ];
  });
}

async function readText(workspace: Workspace, path: string): Promise<{ bytes: number; text: string }> {
  const bytes = await workspace.read(path, maxReadBytes);
  if (!isUtf8(bytes) || bytes.includes(0))
    throw refusal(`The file ${JSON.stringify(path)} is not text in UTF-8.`);
  return { bytes: bytes.length, text: bytes.toString('utf8') };
}

async function editFile(
  workspace: Workspace,
  edit: Replacement,
): Promise<{ path: string; bytes: number; replaced: number }> {
  const { path } = edit;
  const { text } = await readText(workspace, path);
  const { text: newText, count } = replaceText(text, edit, maxReadBytes);
  const bytes = Buffer.from(newText, 'utf8');
  if (bytes.length > maxReadBytes) throw sizeRefusal(path, maxReadBytes);
  await workspace.write(path, bytes);
  return { path, bytes: bytes.length, replaced: count };
}

async function readFile(workspace: Workspace, { path, offset, limit }: ReadInput): Promise<object> {
  if (offset === undefined && limit === undefined) {
    const { bytes, text } = await readText(workspace, path);
    return { path, bytes, content: text };
  }
  const range = { offset: offset ?? 1, limit: limit ?? defaultLines, maxBytes: maxReadBytes };
  const result = await workspace.open(path, (file) => readLines(file, range));
  const label = `The file ${JSON.stringify(path)}`;
  if (result === 'binary') throw refusal(`${label} is not text in UTF-8.`);
  if (result === 'too_long')
    throw refusal(
      `The line ${range.offset} of ${JSON.stringify(path)} is longer than ${maxReadBytes / 1024} KiB.`,
    );
  if (result === 'too_far')
    throw refusal(
      `The line ${range.offset} of ${JSON.stringify(path)} is beyond the first ` +
        `${maxScannedBytes / 1024 / 1024} MiB, which are all that can be read.`,
    );
  return { path, offset: range.offset, ...result };
}

async function searchFor(workspace: Workspace, input: SearchInput, signal: AbortSignal): Promise<object> {
  const { text, pattern, path: folder = '.', files, ignoreCase = false } = input;
  if ((text === undefined) === (pattern === undefined))
    throw refusal('Send either `text` or a `pattern`, and not both.');
  const query = text === undefined ? { pattern: pattern ?? '' } : { text };
  return searchWorkspace(workspace, { query, folder, files, ignoreCase, signal });
}
