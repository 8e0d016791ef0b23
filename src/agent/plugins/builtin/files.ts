// The plugin `files`: lists, searches, reads, writes and edits text files of the workspace. The
// workspace decides which paths may be used; this file defines the actions and their limits.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { definePlugin, type Plugin, type ToolPermission } from '../definition/plugin.ts';
import { searchWorkspace } from './search.ts';
import type { Workspace } from './workspace.ts';

const maxReadBytes = 256 * 1024;
const maxWriteCharacters = 1024 * 1024;
const maxEntries = 1000;

type FilesInputs = {
  list: { path?: string };
  search: { text: string; path?: string; ignoreCase?: boolean };
  read: { path: string };
  write: { path: string; content: string };
  edit: EditInput;
};

interface EditInput {
  path: string;
  oldText: string;
  newText: string;
  all?: boolean;
}

const pathSchema = (description: string) => ({ type: 'string', minLength: 1, maxLength: 4096, description });
const contentSchema = (description: string) => ({
  type: 'string',
  maxLength: maxWriteCharacters,
  description,
});
const inputs = {
  list: {
    type: 'object',
    properties: { path: pathSchema('A folder, relative to the workspace, such as `notes/2026`.') },
    additionalProperties: false,
  },
  search: {
    type: 'object',
    required: ['text'],
    properties: {
      text: {
        type: 'string',
        minLength: 1,
        maxLength: 1000,
        description: 'The text itself, not a pattern.',
      },
      path: pathSchema('A folder or a file to search in.'),
      ignoreCase: { type: 'boolean', description: 'Whether upper and lower case are the same.' },
    },
    additionalProperties: false,
  },
  read: {
    type: 'object',
    required: ['path'],
    properties: { path: pathSchema('A file, relative to the workspace.') },
    additionalProperties: false,
  },
  write: {
    type: 'object',
    required: ['path', 'content'],
    properties: {
      path: pathSchema('A file, relative to the workspace.'),
      content: contentSchema('The whole new content.'),
    },
    additionalProperties: false,
  },
  edit: {
    type: 'object',
    required: ['path', 'oldText', 'newText'],
    properties: {
      path: pathSchema('A file, relative to the workspace.'),
      oldText: {
        ...contentSchema('What is there now, with its line ends and spaces.'),
        minLength: 1,
      },
      newText: contentSchema('What is to stand in its place.'),
      all: { type: 'boolean', description: 'Whether every occurrence is replaced.' },
    },
    additionalProperties: false,
  },
};

/** The plugin over one workspace. */
export function files(workspace: Workspace): Plugin {
  const serialize = createSerializer();
  const reachable = { api: true, command: true };
  return definePlugin<FilesInputs>({
    name: 'files',
    title: 'Files',
    description: 'Lists, searches, reads, writes and edits the text files of the workspace.',
    actions: {
      list: {
        description:
          'Lists one folder of the workspace: names, kinds and sizes. Without a path, the workspace itself.',
        ...reachable,
        readOnly: true,
        permissions: async ({ path = '.' }) => [{ path: await workspace.resolve(path) }],
        input: inputs.list,
        async run({ path = '.' }) {
          const { entries, truncated } = await workspace.list(path, maxEntries);
          return { path, entries, ...(truncated ? { truncated } : {}) };
        },
      },
      search: {
        description:
          'Finds lines that hold a text in the text files of the workspace, below a folder if one is given. Folders such as node_modules and .git are left out.',
        ...reachable,
        readOnly: true,
        permissions: async ({ path = '.' }) => [{ path: await workspace.resolve(path), includesBelow: true }],
        input: inputs.search,
        run: ({ text, path: folder = '.', ignoreCase = false }, { signal }) =>
          searchWorkspace(workspace, { text, folder, ignoreCase, signal }),
      },
      read: {
        description: 'Reads a text file of the workspace, at most 256 KiB.',
        ...reachable,
        readOnly: true,
        permissions: async ({ path }) => [{ path: await workspace.resolve(path) }],
        input: inputs.read,
        async run({ path }) {
          const { bytes, text } = await readText(workspace, path);
          return { path, bytes, content: text };
        },
      },
      write: {
        description:
          'Writes a text file of the workspace as a whole, making it and its folders if they are not there.',
        ...reachable,
        needsApproval: ({ path }) => workspace.isProtected(path),
        permissions: ({ path }) => writePermissions(workspace, path),
        input: inputs.write,
        run: ({ path, content }) =>
          serialize(async () => {
            const bytes = Buffer.from(content, 'utf8');
            const { created } = await workspace.write(path, bytes);
            return { path, bytes: bytes.length, created };
          }),
      },
      edit: {
        description:
          'Replaces a piece of a text file by another. The old piece must be there exactly as given, and once, unless all are to be replaced.',
        ...reachable,
        needsApproval: ({ path }) => workspace.isProtected(path),
        permissions: ({ path }) => writePermissions(workspace, path),
        input: inputs.edit,
        run: (edit) => serialize(() => editFile(workspace, edit)),
      },
    },
  });
}

async function writePermissions(workspace: Workspace, path: string): Promise<ToolPermission[]> {
  await workspace.updateProtected();
  return [{ path, isProtected: workspace.isProtected(path) }];
}

// The tools of one step run concurrently, and an edit reads before it writes:
// changes run one after the other.
function createSerializer(): <T>(work: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const result = last.then(work);
    last = result.catch(() => {});
    return result;
  };
}

async function readText(workspace: Workspace, path: string): Promise<{ bytes: number; text: string }> {
  const bytes = await workspace.read(path, maxReadBytes);
  if (!isUtf8(bytes) || bytes.includes(0))
    throw refusal(`The file ${JSON.stringify(path)} is not text in UTF-8.`);
  return { bytes: bytes.length, text: bytes.toString('utf8') };
}

async function editFile(
  workspace: Workspace,
  { path, oldText, newText, all = false }: EditInput,
): Promise<{ path: string; bytes: number; replaced: number }> {
  const { text } = await readText(workspace, path);
  const pieces = text.split(oldText);
  const count = pieces.length - 1;
  const label = `The file ${JSON.stringify(path)}`;
  if (count === 0) throw refusal(`${label} does not hold the old text.`);
  if (count > 1 && !all)
    throw refusal(
      `${label} holds the old text ${count} times; give more of what is around it, or replace all.`,
    );
  // Check the length before joining: a one-letter piece replaced by a long text would make gigabytes.
  const characters = text.length + count * (newText.length - oldText.length);
  const bytes = characters > maxReadBytes ? null : Buffer.from(pieces.join(newText), 'utf8');
  if (bytes === null || bytes.length > maxReadBytes)
    throw refusal(`${label} would be larger than ${maxReadBytes / 1024} KiB.`);
  await workspace.write(path, bytes);
  return { path, bytes: bytes.length, replaced: count };
}

function refusal(message: string): Problem {
  return new Problem('impossible', 'action_refused', message);
}
