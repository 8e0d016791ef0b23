// Edits of JSON text with comments: everything that an edit does not name stays byte for byte.
import { describe, expect, test } from 'vitest';
import { applyEdit, revertEdit, type FileEdit } from '../../src/cli/connect/files/file-edit.ts';
import { removeBlock, writeBlock } from '../../src/cli/connect/files/block-text.ts';

const edit = (
  set: [path: string, value: unknown][],
  prepend: [path: string, item: unknown][] = [],
): FileEdit => ({
  kind: 'json',
  path: 'settings.json',
  set: set.map(([at, value]) => ({ at: at.split('.'), value })),
  prepend: prepend.map(([at, item]) => ({ at: at.split('.'), item })),
});
const apply = (text: string | null, change: FileEdit) => applyEdit(change, text).text;

const commentedText = `{
  // The theme of the evening.
  "theme": "dark", /* not light */
  "env": {
    "PATH": "/bin", // kept
  },
}
`;

describe('a JSON edit', () => {
  test('creates a file', () => {
    expect(apply(null, edit([['env.URL', 'x']]))).toBe('{\n  "env": {\n    "URL": "x"\n  }\n}\n');
  });

  test('keeps comments and trailing commas', () => {
    const text = apply(
      commentedText,
      edit([
        ['env.URL', 'x'],
        ['model', 'm'],
      ]),
    );
    for (const part of ['// The theme of the evening.', '/* not light */', '"PATH": "/bin", // kept'])
      expect(text).toContain(part);
    expect(text).toContain('"URL": "x"');
    expect(text).toContain('"model": "m"');
  });

  test('replaces only the value of a member', () => {
    expect(apply('{"a": 1, "b": {"c": 2}}', edit([['b.c', 'new']]))).toBe('{"a": 1, "b": {"c": "new"}}');
  });

  test('puts an item before the others of a list', () => {
    const text = apply('{"list": [{"id": 1}]}', edit([], [['list', { id: 0 }]]));
    expect(JSON.parse(text)).toEqual({ list: [{ id: 0 }, { id: 1 }] });
  });

  test('ignores brackets and comment signs in strings', () => {
    const text = apply('{"a": "} // \\" {", "b": 1}', edit([['b', 2]]));
    expect(text).toBe('{"a": "} // \\" {", "b": 2}');
  });

  test.each([
    ['a broken file', '{"a": ', 'line 1 is not valid JSON'],
    ['a list', '[1]', 'is not an object'],
    ['a string on the path', '{"env": "x"}', 'env is not an object'],
  ])('refuses %s and names the file', (_name, text, message) => {
    expect(() => apply(text, edit([['env.URL', 'x']]))).toThrow(message);
    expect(() => apply(text, edit([['env.URL', 'x']]))).toThrow('settings.json');
  });
});

describe('the undo of a JSON edit', () => {
  const change = edit(
    [
      ['theme', 'light'],
      ['env.URL', 'x'],
      ['security.auth.type', 'key'],
    ],
    [['models.openai', { id: 1 }]],
  );

  test.each([
    ['an empty object', '{}\n'],
    ['comments', commentedText],
    ['a list', '{\n  "models": {\n    "openai": [\n      { "id": 2 }\n    ]\n  }\n}\n'],
    ['one line', '{"a": 1}'],
  ])('keeps all other members of a file with %s', (_name, text) => {
    const { text: connectedText, changes } = applyEdit(change, text);
    const laterText = apply(connectedText, edit([['later', true]]));
    const restoredText = revertEdit('json', changes, laterText);
    expect(apply(restoredText, edit([]))).toBe(restoredText);
    const members = (json: string) =>
      JSON.parse(json.replaceAll(/\/\/.*|\/\*.*?\*\//g, '').replaceAll(/,(\s*[}\]])/g, '$1')) as object;
    expect(members(restoredText)).toEqual({ ...members(text), later: true });
  });

  test.each([
    ['after the member before', '{\n  "a": 1 // mine\n}\n'],
    ['in an object without members', '{\n  // mine\n}\n'],
    ['in one line', '{"a": 1 /* mine */}'],
  ])('keeps a comment %s', (_name, text) => {
    const { text: connectedText, changes } = applyEdit(edit([['model', 'm']]), text);
    expect(revertEdit('json', changes, connectedText)).toBe(text);
  });

  test('keeps what follows a line comment on another line', () => {
    const { changes } = applyEdit(edit([['model', 'm']]), '{"a": 1}');
    const text = revertEdit('json', changes, '{"a": 1, // mine\n"model": "m"}');
    expect(text).toBe('{"a": 1 // mine\n}');
  });

  test('keeps a value that was changed since', () => {
    const { text, changes } = applyEdit(edit([['model', 'ours']]), '{"model": "theirs"}');
    const restoredText = revertEdit('json', changes, text.replace('ours', 'newer'));
    expect(restoredText).toBe('{"model": "newer"}');
  });
});

describe('a block of lines', () => {
  test('is appended, and replaced by a later block', () => {
    const text = writeBlock(writeBlock('a: 1', ['b: 2']), ['b: 3']);
    expect(text).toBe('a: 1\n# >>> townhall connect\nb: 3\n# <<< townhall connect\n');
    expect(removeBlock(text)).toBe('a: 1\n');
  });

  test('has the indentation of the list below its line', () => {
    const text = writeBlock(
      'models:\n    - name: a # mine\nrules: []\n',
      ['- name: b', '  model: c'],
      'models:',
    );
    expect(text).toBe(
      [
        'models:',
        '    # >>> townhall connect',
        '    - name: b',
        '      model: c',
        '    # <<< townhall connect',
        '    - name: a # mine',
        'rules: []\n',
      ].join('\n'),
    );
  });

  test('refuses a file without its line', () => {
    expect(() => writeBlock('models: []\n', ['- a'], 'models:')).toThrow('has no line "models:"');
  });
});
