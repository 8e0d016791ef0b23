// The plugin `files`: lists, reads and writes text files of the workspace. Everything about where a path may lead is
// the workspace's; here is what the model is offered and how much at a time.
import { isUtf8 } from 'node:buffer';
import { Problem } from '../../../kernel/problem.ts';
import { definePlugin, type Plugin } from '../plugin.ts';
import type { Workspace } from './workspace.ts';

const maximumReadBytes = 256 * 1024;
const maximumWriteCharacters = 1024 * 1024;
const maximumEntries = 1000;

const path = (description: string) => ({ type: 'string', minLength: 1, maxLength: 4096, description });

/** The plugin over one workspace. */
export function files(workspace: Workspace): Plugin {
  return definePlugin<{ list: { path?: string }; read: { path: string }; write: { path: string; content: string } }>({
    name: 'files',
    title: 'Files',
    description: 'Lists, reads and writes the text files of the workspace.',
    actions: {
      list: {
        description: 'Lists one folder of the workspace: names, kinds and sizes. Without a path, the workspace itself.',
        input: {
          type: 'object',
          properties: { path: path('A folder, relative to the workspace, such as `notes/2026`.') },
          additionalProperties: false,
        },
        async run({ path = '.' }) {
          const { entries, truncated } = await workspace.list(path, maximumEntries);
          return { path, entries, ...(truncated ? { truncated } : {}) };
        },
      },
      read: {
        description: 'Reads a text file of the workspace, at most 256 KiB.',
        input: {
          type: 'object',
          required: ['path'],
          properties: { path: path('A file, relative to the workspace.') },
          additionalProperties: false,
        },
        async run({ path }) {
          const bytes = await workspace.read(path, maximumReadBytes);
          if (!isUtf8(bytes) || bytes.includes(0)) {
            throw new Problem('impossible', 'action_refused', `The file ${JSON.stringify(path)} is not text in UTF-8.`);
          }
          return { path, bytes: bytes.length, content: bytes.toString('utf8') };
        },
      },
      write: {
        description: 'Writes a text file of the workspace as a whole, making it and its folders if they are not there.',
        input: {
          type: 'object',
          required: ['path', 'content'],
          properties: {
            path: path('A file, relative to the workspace.'),
            content: { type: 'string', maxLength: maximumWriteCharacters, description: 'The whole new content.' },
          },
          additionalProperties: false,
        },
        async run({ path, content }) {
          const bytes = Buffer.from(content, 'utf8');
          const { created } = await workspace.write(path, bytes);
          return { path, bytes: bytes.length, created };
        },
      },
    },
  });
}
