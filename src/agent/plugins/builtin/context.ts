// The plugin `context`: reads outputs of earlier tool calls that were pruned from
// the conversation. The log of the session still has them.
import { definePlugin, type Plugin } from '../definition/plugin.ts';

/** The output with this seq in the session's log; undefined when there is none. */
export type ReadOutput = (sessionId: string, seq: number) => Promise<unknown>;

type ContextInputs = {
  read: { seq: number; offset?: number; length?: number };
};

const defaultLength = 10_000;
const maxLength = 40_000;

const readSchema = {
  type: 'object',
  required: ['seq'],
  properties: {
    seq: { type: 'integer', minimum: 1, maximum: 2_147_483_647, description: 'The seq in the note.' },
    offset: {
      type: 'integer',
      minimum: 0,
      maximum: 10_000_000,
      description: 'Where to begin, in characters; 0 by default.',
    },
    length: {
      type: 'integer',
      minimum: 1,
      maximum: maxLength,
      description: `Characters to read; ${defaultLength} by default.`,
    },
  },
  additionalProperties: false,
};

export function context({ readOutput }: { readOutput: ReadOutput }): Plugin {
  return definePlugin<ContextInputs>({
    name: 'context',
    title: 'Context',
    description: 'Reads outputs of earlier tool calls that were removed from the conversation.',
    actions: {
      read: {
        description:
          'Reads an output of an earlier tool call again, or a part of it. Use it where a note ' +
          'in the conversation names a seq and you need what was removed.',
        readOnly: true,
        input: readSchema,
        async run({ seq, offset = 0, length = defaultLength }, { sessionId, refuse }) {
          const output = sessionId === null ? undefined : await readOutput(sessionId, seq);
          if (output === undefined) refuse(`There is no output with the seq ${seq} in this session.`);
          const text = typeof output === 'string' ? output : JSON.stringify(output);
          const end = endOfPage(text, offset, length);
          return {
            text: text.slice(offset, end).toWellFormed(),
            totalCharacters: text.length,
            nextOffset: end < text.length ? end : null,
          };
        },
      },
    },
  });
}

/** Splits no surrogate pair between two pages; a page with room for half of one pair gets the whole pair. */
function endOfPage(text: string, offset: number, length: number): number {
  const end = Math.min(text.length, offset + length);
  const splitsPair = /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(end - 1, end + 1));
  if (!splitsPair) return end;
  return end - 1 > offset ? end - 1 : end + 1;
}
