// The plugin `files`: lists, searches, reads, writes and edits text files of the workspace. Everything about where a
// path may lead is the workspace's; here is what the model is offered and how much at a time.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { definePlugin, type Plugin } from '../plugin.ts';
import { searchWorkspace } from './search.ts';
import type { Workspace } from './workspace.ts';

const maximumReadBytes = 256 * 1024;
const maximumWriteCharacters = 1024 * 1024;
const maximumEntries = 1000;

const path = (description: string) => ({ type: 'string', minLength: 1, maxLength: 4096, description });
const content = (description: string) => ({ type: 'string', maxLength: maximumWriteCharacters, description });

type FilesInputs = {
  list: { path?: string };
  search: { text: string; path?: string; ignoreCase?: boolean };
  read: { path: string };
  write: { path: string; content: string };
  edit: { path: string; oldText: string; newText: string; all?: boolean };
};

/** The plugin over one workspace. */
export function files(workspace: Workspace): Plugin {
  // An edit reads and then writes, and the tools of one step run side by side: they wait for one another here.
  let last: Promise<unknown> = Promise.resolve();
  function inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = last.then(work);
    last = result.catch(() => {});
    return result;
  }

  async function readText(name: string): Promise<{ bytes: number; text: string }> {
    const bytes = await workspace.read(name, maximumReadBytes);
    if (!isUtf8(bytes) || bytes.includes(0))
      throw refusal(`The file ${JSON.stringify(name)} is not text in UTF-8.`);
    return { bytes: bytes.length, text: bytes.toString('utf8') };
  }

  return definePlugin<FilesInputs>({
    name: 'files',
    title: 'Files',
    description: 'Lists, searches, reads, writes and edits the text files of the workspace.',
    actions: {
      list: {
        description:
          'Lists one folder of the workspace: names, kinds and sizes. Without a path, the workspace itself.',
        api: true,
        command: true,
        input: {
          type: 'object',
          properties: { path: path('A folder, relative to the workspace, such as `notes/2026`.') },
          additionalProperties: false,
        },
        async run({ path: folder = '.' }) {
          const { entries, truncated } = await workspace.list(folder, maximumEntries);
          return { path: folder, entries, ...(truncated ? { truncated } : {}) };
        },
      },
      search: {
        description:
          'Finds lines that hold a text in the text files of the workspace, below a folder if one is given. Folders such as node_modules and .git are left out.',
        api: true,
        command: true,
        input: {
          type: 'object',
          required: ['text'],
          properties: {
            text: {
              type: 'string',
              minLength: 1,
              maxLength: 1000,
              description: 'The text itself, not a pattern.',
            },
            path: path('A folder or a file to search in.'),
            ignoreCase: { type: 'boolean', description: 'Whether upper and lower case are the same.' },
          },
          additionalProperties: false,
        },
        run: ({ text, path: folder = '.', ignoreCase = false }, { signal }) =>
          searchWorkspace(workspace, { text, folder, ignoreCase, signal }),
      },
      read: {
        description: 'Reads a text file of the workspace, at most 256 KiB.',
        api: true,
        command: true,
        input: {
          type: 'object',
          required: ['path'],
          properties: { path: path('A file, relative to the workspace.') },
          additionalProperties: false,
        },
        async run({ path: name }) {
          const { bytes, text } = await readText(name);
          return { path: name, bytes, content: text };
        },
      },
      write: {
        description:
          'Writes a text file of the workspace as a whole, making it and its folders if they are not there.',
        api: true,
        command: true,
        input: {
          type: 'object',
          required: ['path', 'content'],
          properties: {
            path: path('A file, relative to the workspace.'),
            content: content('The whole new content.'),
          },
          additionalProperties: false,
        },
        run: ({ path: name, content: text }) =>
          inTurn(async () => {
            const bytes = Buffer.from(text, 'utf8');
            const { created } = await workspace.write(name, bytes);
            return { path: name, bytes: bytes.length, created };
          }),
      },
      edit: {
        description:
          'Replaces a piece of a text file by another. The old piece must be there exactly as given, and once, unless all are to be replaced.',
        api: true,
        command: true,
        input: {
          type: 'object',
          required: ['path', 'oldText', 'newText'],
          properties: {
            path: path('A file, relative to the workspace.'),
            oldText: { ...content('What is there now, with its line ends and spaces.'), minLength: 1 },
            newText: content('What is to stand in its place.'),
            all: { type: 'boolean', description: 'Whether every occurrence is replaced.' },
          },
          additionalProperties: false,
        },
        run: ({ path: name, oldText, newText, all = false }) =>
          inTurn(async () => {
            const { text } = await readText(name);
            const pieces = text.split(oldText);
            const found = pieces.length - 1;
            if (found === 0) throw refusal(`The file ${JSON.stringify(name)} does not hold the old text.`);
            if (found > 1 && !all)
              throw refusal(
                `The file ${JSON.stringify(name)} holds the old text ${found} times; give more of what is around it, or replace all.`,
              );
            // Counted first: a piece of a character replaced by a long text would make gigabytes.
            const characters = text.length + found * (newText.length - oldText.length);
            const bytes = characters > maximumReadBytes ? null : Buffer.from(pieces.join(newText), 'utf8');
            if (bytes === null || bytes.length > maximumReadBytes)
              throw refusal(
                `The file ${JSON.stringify(name)} would be larger than ${maximumReadBytes / 1024} KiB.`,
              );
            await workspace.write(name, bytes);
            return { path: name, bytes: bytes.length, replaced: found };
          }),
      },
    },
  });
}

function refusal(message: string): Problem {
  return new Problem('impossible', 'action_refused', message);
}
