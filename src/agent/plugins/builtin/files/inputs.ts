// The JSON Schemas of the inputs of the plugin `files`.
export const maxReadBytes = 256 * 1024;
const maxWriteCharacters = 1024 * 1024;
const maxEdits = 100;

const pathSchema = (description: string) => ({ type: 'string', minLength: 1, maxLength: 4096, description });
const contentSchema = (description: string) => ({
  type: 'string',
  maxLength: maxWriteCharacters,
  description,
});
const globSchema = (description: string) => ({ type: 'string', minLength: 1, maxLength: 1000, description });
const lineSchema = (description: string) => ({
  type: 'integer',
  minimum: 1,
  maximum: 2_147_483_647,
  description,
});

const replacement = {
  type: 'object',
  required: ['path', 'oldText', 'newText'],
  properties: {
    path: pathSchema('A file, relative to the workspace.'),
    oldText: {
      ...contentSchema('The old text, including its line breaks and spaces.'),
      minLength: 1,
    },
    newText: contentSchema('The new text.'),
    all: { type: 'boolean', description: 'Whether every occurrence is replaced.' },
  },
  additionalProperties: false,
};

export const inputs = {
  list: {
    type: 'object',
    properties: { path: pathSchema('A folder, relative to the workspace, such as `notes/2026`.') },
    additionalProperties: false,
  },
  glob: {
    type: 'object',
    required: ['pattern'],
    properties: {
      pattern: globSchema('Such as `**/*.test.ts` or `src/{a,b}/*`, relative to the folder.'),
      path: pathSchema('A folder to look in; the workspace by default.'),
    },
    additionalProperties: false,
  },
  search: {
    type: 'object',
    properties: {
      text: {
        type: 'string',
        minLength: 1,
        maxLength: 1000,
        description: 'The text itself, not a pattern.',
      },
      pattern: {
        type: 'string',
        minLength: 1,
        maxLength: 1000,
        description: 'A JavaScript regular expression instead of `text`; it is matched against each line.',
      },
      path: pathSchema('A folder or a file to search in.'),
      files: globSchema('Only files whose path below the folder matches, such as `**/*.ts`.'),
      ignoreCase: { type: 'boolean', description: 'Whether upper and lower case are the same.' },
    },
    additionalProperties: false,
  },
  read: {
    type: 'object',
    required: ['path'],
    properties: {
      path: pathSchema('A file, relative to the workspace.'),
      offset: lineSchema('The first line to read, counted from 1.'),
      limit: lineSchema('How many lines to read; 2,000 by default if `offset` is given.'),
    },
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
  edit: replacement,
  patch: {
    type: 'object',
    properties: {
      edits: {
        type: 'array',
        minItems: 1,
        maxItems: maxEdits,
        description: 'Exact replacements, applied in their order.',
        items: replacement,
      },
      diff: {
        ...contentSchema(
          'A unified diff instead of `edits`, with `--- a/path` and `+++ b/path` above the ' +
            'hunks of each file; `/dev/null` stands for a file that is created or deleted.',
        ),
        minLength: 1,
      },
    },
    additionalProperties: false,
  },
};
