// A plugin with an action, a guard and an effect: a journal of the tool calls of the agent.
// townhall agent --plugin examples/plugin-journal.ts …
import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { definePlugin } from 'townhall';

const file = join(process.cwd(), 'journal.log');

export const plugin = definePlugin<{ read: { lines?: number } }>({
  name: 'journal',
  title: 'Journal',
  description: 'Lists the tool calls of the agent.',
  actions: {
    read: {
      description: 'Reads the last lines of the journal.',
      api: true,
      input: {
        type: 'object',
        properties: { lines: { type: 'integer', minimum: 1, maximum: 100 } },
        additionalProperties: false,
      },
      async run({ lines = 10 }) {
        const text = await readFile(file, 'utf8').catch(() => '');
        return {
          entries: text
            .split('\n')
            .filter((line) => line !== '')
            .slice(-lines),
        };
      },
    },
  },
  hooks: {
    guards: {
      'tool.before': ({ input }) =>
        JSON.stringify(input).includes('.env')
          ? { refuse: 'This agent does not open .env files.' }
          : undefined,
    },
    effects: {
      'tool.after': ({ toolName, ok }) => appendFile(file, `${toolName} ${ok ? 'succeeded' : 'failed'}\n`),
    },
  },
});
