// Member names in snake case, which operations with `x-snake-case-members` accept.
import { describe, expect, it } from 'vitest';
import { createSnakeCaseReader } from '../../../src/kernel/contract/snake-case.ts';

const document = { openapi: '3.1.0', info: { title: 'Test', version: '1' }, paths: {} };
const schema = {
  properties: {
    mimeType: { type: 'string' },
    inlineData: { properties: { mimeType: { type: 'string' } } },
    parts: { items: { properties: { inlineData: { properties: { mimeType: {} } }, args: {} } } },
  },
};
const read = createSnakeCaseReader(document, schema);

describe('createSnakeCaseReader', () => {
  it('renames members at each depth', () => {
    const body = { inline_data: { mime_type: 'a' }, parts: [{ inline_data: { mime_type: 'b' } }] };
    expect(read(body)).toEqual({ inlineData: { mimeType: 'a' }, parts: [{ inlineData: { mimeType: 'b' } }] });
  });

  it('renames no members of open objects', () => {
    const body = { parts: [{ args: { mime_type: 'a' } }] };
    expect(read(body)).toEqual({ parts: [{ args: { mime_type: 'a' } }] });
  });

  it('keeps both spellings of one member', () => {
    const body = { mime_type: 'a', mimeType: 'b' };
    expect(read(body)).toEqual({ mime_type: 'a', mimeType: 'b' });
  });

  it('treats __proto__ like any other member', () => {
    const result = read(JSON.parse('{"mime_type":"a","__proto__":{"parts":1},"constructor":2}')) as object;
    expect(JSON.stringify(result)).toBe('{"mimeType":"a","__proto__":{"parts":1},"constructor":2}');
    expect(Object.getPrototypeOf(result)).toBe(Object.prototype);
  });

  // A copy of each object of a body of 10 MiB took up to a second.
  it('copies no object without a member to rename', () => {
    const part = { inlineData: { mimeType: 'a' } };
    const body = { parts: [part, { inline_data: {} }] };
    const result = read(body) as typeof body;
    expect(result).toBe(body);
    expect(result.parts[0]).toBe(part);
  });
});
