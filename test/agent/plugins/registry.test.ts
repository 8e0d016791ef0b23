// The plugin registry refuses ambiguous names and invalid schemas at the start.
import { describe, expect, test } from 'vitest';
import { createRegistry, definePlugin, type Plugin } from '../../../src/agent/plugins/index.ts';

const plugin = (name: string, action = 'act', input: Record<string, unknown> = { type: 'object' }): Plugin =>
  definePlugin({
    name,
    title: name,
    description: '',
    actions: { [action]: { description: '', input, run: async () => null } },
  });

describe('createRegistry', () => {
  test('names tools by plugin and action', () => {
    expect(createRegistry([plugin('a'), plugin('b')]).tools.map(({ name }) => name)).toEqual([
      'a_act',
      'b_act',
    ]);
  });

  test('refuses two plugins of one name', () => {
    expect(() => createRegistry([plugin('a'), plugin('a', 'other')])).toThrow(
      'Two plugins claim the name "a".',
    );
  });

  test.each(['', 'A', 'a_b', '../x', '__proto__', 'constructor()', 'a'.repeat(32)])(
    'refuses the name %j for a plugin and for an action',
    (name) => {
      expect(() => createRegistry([plugin(name)])).toThrow(/a name is a lower-case letter/);
      expect(() => createRegistry([plugin('a', name)])).toThrow(/a name is a lower-case letter/);
    },
  );

  test('refuses an input schema that does not describe an object', () => {
    expect(() => createRegistry([plugin('a', 'act', { type: 'string' })])).toThrow(
      /must have "type": "object"/,
    );
  });

  test('refuses an input schema that is not a JSON Schema', () => {
    const input = { type: 'object', properties: { x: { type: 'banana' } } };
    expect(() => createRegistry([plugin('a', 'act', input)])).toThrow(/is not a JSON Schema/);
  });

  test('finds no tool named like a member of Object.prototype', () => {
    const registry = createRegistry([plugin('a')]);
    for (const name of ['__proto__', 'constructor', 'toString']) expect(registry.tool(name)).toBeUndefined();
  });
});
