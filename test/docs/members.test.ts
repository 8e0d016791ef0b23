// The members of a schema as rows of an operation's page.
import { describe, expect, test } from 'vitest';
import { membersOf } from '../../scripts/docs/schema-members.ts';
import type { Document } from '../../scripts/generate/document.ts';

const document = {
  components: {
    schemas: {
      Prompt: {
        type: 'object',
        required: ['model', 'prompt'],
        properties: { model: { type: 'string' }, prompt: { type: 'string' } },
      },
      Conversation: {
        type: 'object',
        required: ['model'],
        properties: { model: { type: 'string' }, messages: { type: 'array', items: { type: 'object' } } },
      },
    },
  },
} as Document;

describe('membersOf', () => {
  test('lists the members of two forms, each once', () => {
    const schema = {
      oneOf: [{ $ref: '#/components/schemas/Prompt' }, { $ref: '#/components/schemas/Conversation' }],
    };
    expect(membersOf(document, schema)).toEqual([
      { name: 'model', type: 'string', isRequired: true, description: '' },
      { name: 'prompt', type: 'string', isRequired: true, description: '', form: 'Prompt' },
      { name: 'messages', type: 'list of object', isRequired: false, description: '', form: 'Conversation' },
    ]);
  });

  test('leaves out the bounds of the safe integers', () => {
    const seed = { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER };
    expect(membersOf(document, { properties: { seed } })).toMatchObject([{ name: 'seed', type: 'integer' }]);
  });
});
