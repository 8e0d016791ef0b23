// Decisions of permission rules: command lines that imitate an allowed one, paths,
// and the precedence of effects.
import { describe, expect, test } from 'vitest';
import { literalPattern, matchesCommand } from '../../../src/agent/permissions/patterns.ts';
import { decide, type Permission, type PermissionRule } from '../../../src/agent/permissions/rules.ts';
import { simpleCommands } from '../../../src/agent/permissions/shell-commands.ts';

const rule = (tool: string, pattern: string | null, effect: PermissionRule['effect']): PermissionRule => ({
  tool,
  pattern,
  effect,
});
const shell = (command: string): Permission[] => [{ tool: 'shell.run', command }];
const write = (path: string, isProtected = false): Permission[] => [
  { tool: 'files.write', path, isProtected },
];
const effectOf = (needs: readonly Permission[], ...rules: PermissionRule[]) => decide(needs, rules).effect;

describe('simpleCommands', () => {
  test.each([
    ['npm test', ['npm test']],
    ['  npm   test\t-- --run ', ['npm test -- --run']],
    ['npm test; ls', ['npm test', 'ls']],
    ['npm test && ls || pwd | wc', ['npm test', 'ls', 'pwd', 'wc']],
    ['npm test\nls', ['npm test', 'ls']],
    ['npm test & ls', ['npm test', 'ls']],
    ["echo 'a; b'", ["echo 'a; b'"]],
    ['echo "a && b"', ["echo 'a && b'"]],
    ['npm test 2>&1', ['npm test']],
    ['npm test >/dev/null 2>/dev/null', ['npm test']],
    ['"npm test" x', ["'npm test' x"]],
    [String.raw`npm\ test x`, ["'npm test' x"]],
    ["echo 'it'\\''s'", [String.raw`echo 'it'\''s'`]],
  ])('parses %j', (text, commands) => {
    expect(simpleCommands(text)).toEqual(commands);
  });

  test.each([
    'npm test $(rm x)',
    'npm test `rm x`',
    'npm test "$(rm x)"',
    'npm test "`rm x`"',
    'npm test $HOME',
    'npm test ${IFS}x',
    "npm test $'\\x3b'",
    'npm test > x',
    'npm test >> x',
    'npm test >| x',
    'npm test 2> x',
    'npm test &> x',
    'npm test >/dev/nullx',
    'npm test 3>/dev/null',
    'npm test 12>/dev/null',
    'npm test < x',
    'npm test << EOF',
    'npm test <(ls)',
    'npm test >(sh)',
    '(npm test)',
    '{ npm test; }',
    'npm test \\\n; ls',
    'PATH=. npm test',
    'LD_PRELOAD=./x.so npm test',
    'A+=1 npm test',
    '! npm test',
    'if npm test; then ls; fi',
    'while npm test; do ls; done',
    'npm() { rm x; }',
    'npm test # comment',
    'npm test "open',
    "npm test 'open",
    'npm test \u0000',
    'npm test\rls',
    'npm test\vls',
    'ls\u00a0-l',
    'ls \u2003-l',
    '\ufeffls',
    'ls\u2028rm x',
    'npm test >/dev/null\u00a0',
    'npm {test,x}',
    '',
    ' ; ',
  ])('rejects %j', (text) => {
    expect(simpleCommands(text)).toBeUndefined();
  });
});

describe('rules for commands', () => {
  const npmTest = rule('shell', 'npm test*', 'allow');

  test.each(['npm test', 'npm  test -- x', 'npm test; npm test', 'npm test 2>&1'])('allow %j', (command) => {
    expect(effectOf(shell(command), npmTest)).toBe('allow');
  });

  test.each([
    'npm install',
    'npm test; rm x',
    'npm test && rm x',
    'npm test | sh',
    'npm test & rm x',
    'npm test\nrm x',
    'npm test $(rm x)',
    'npm test `rm x`',
    'npm test > Makefile',
    'X=1 npm test',
    '"npm test" x',
    'rm x # npm test',
    './npm test',
    'xnpm test',
  ])('leave %j to the tool', (command) => {
    expect(effectOf(shell(command), npmTest)).toBe('default');
  });

  test('need a match for each command', () => {
    expect(effectOf(shell('npm test; ls -l'), npmTest, rule('shell', 'ls *', 'allow'))).toBe('allow');
  });

  test('rank deny above ask, and ask above allow', () => {
    const allowAll = rule('shell', '*', 'allow');
    expect(effectOf(shell('rm x'), allowAll, rule('shell', 'rm *', 'deny'))).toBe('deny');
    expect(effectOf(shell('ls; rm x'), allowAll, rule('shell', 'rm *', 'deny'))).toBe('deny');
    expect(effectOf(shell('rm x'), allowAll, rule('shell', 'rm *', 'ask'))).toBe('ask');
    expect(effectOf(shell('rm x'), rule('shell', 'rm *', 'ask'), rule('shell', 'rm *', 'deny'))).toBe('deny');
  });

  test('require approval for unparsable commands when a rule forbids some', () => {
    expect(effectOf(shell('r$(echo m) x'), rule('shell', null, 'allow'), rule('shell', 'rm *', 'deny'))).toBe(
      'ask',
    );
  });

  test('allow a further right only by its name', () => {
    const needs: Permission[] = [
      ...shell('curl x'),
      { tool: 'shell.network', command: 'curl x', isFurther: true },
    ];
    expect(effectOf(needs, rule('shell', '*', 'allow'))).toBe('default');
    expect(effectOf(needs, rule('shell', '*', 'allow'), rule('shell.network', 'curl *', 'allow'))).toBe(
      'allow',
    );
  });

  describe('in another folder or with standard input', () => {
    const folder = { tool: 'shell.folder', isFurther: true, includedIn: 'shell.run', path: 'web' };
    const input = { tool: 'shell.input', isFurther: true, includedIn: 'shell.run', command: 'npm test' };

    test.each([
      ['folder', folder, rule('shell.folder', 'we*', 'allow')],
      ['input', input, rule('shell.input', 'npm *', 'allow')],
    ])('need a rule for the %s too', (_name, need, secondNeed) => {
      const needs = [...shell('npm test'), need];
      expect(effectOf(needs, npmTest)).toBe('default');
      expect(effectOf(needs, npmTest, rule('shell.run', '*', 'allow'))).toBe('default');
      expect(effectOf(needs, secondNeed)).toBe('default');
      expect(effectOf(needs, npmTest, secondNeed)).toBe('allow');
    });

    test.each([folder, input])('are included in a rule without a pattern', (need) => {
      for (const tool of ['shell', 'shell.run', '*'])
        expect(effectOf([...shell('npm test'), need], rule(tool, null, 'allow'))).toBe('allow');
      expect(effectOf([...shell('npm test'), need], rule('files', null, 'allow'))).toBe('default');
    });
  });

  test.each(['ls -la', 'npm run a-b', 'sed s/a-b/c/ x.txt', 'a^b @%+=:,~ [0-9]', "grep '$(){}|<>&;!`#' x"])(
    'match %j literally',
    (command) => {
      expect(effectOf(shell(command), rule('shell', command, 'allow'))).toBe('allow');
      expect(effectOf(shell(`${command}x`), rule('shell', command, 'allow'))).toBe('default');
    },
  );

  test.each([
    ['git * x', 'git commit -m y x', 'allow'],
    ['git * x', 'git commit -m y', 'default'],
    ['g*m*m*x', 'git mm commit x', 'allow'],
    ['ls ?', 'ls a', 'allow'],
    ['ls ?', 'ls ab', 'default'],
    // A backtracking match of these takes hours.
    ['git *m *m *m *m *m *x', `git ${'m '.repeat(20_000)}y`, 'default'],
  ] as const)('match %j', (pattern, command, effect) => {
    expect(effectOf(shell(command), rule('shell', pattern, 'allow'))).toBe(effect);
  });

  test.each([
    [`echo 'a  b'`, `echo "a  b"`, 'allow'],
    [`echo 'a  b'`, `echo "a b"`, 'default'],
    [`echo 'a b'`, `echo "a  b"`, 'default'],
    [`echo 'a\tb'`, `echo 'a b'`, 'default'],
    [`  echo   'a  b'   c  `, `echo 'a  b' c`, 'allow'],
    [`echo '  *'`, `echo '  x'`, 'allow'],
    [`echo '  *'`, `echo ' x'`, 'default'],
    [`echo it\\'s  x`, `echo it\\'s x`, 'default'],
  ] as const)('compare the blanks within quotes of %j and %j', (pattern, command, effect) => {
    expect(effectOf(shell(command), rule('shell', pattern, 'allow'))).toBe(effect);
  });

  test.each(['a  b', ' ', "it's  a\tb", String.raw`a\  b`, "'  '", '"  "', "x'  'y\\'  '", 'a* ?  b'])(
    'match the word %j by its own pattern',
    (word) => {
      const command = `echo '${word.replaceAll("'", String.raw`'\''`)}'`;
      const [canonical = ''] = simpleCommands(command) ?? [];
      expect(effectOf(shell(command), rule('shell', literalPattern(canonical), 'allow'))).toBe('allow');
      expect(effectOf(shell(`${command}x`), rule('shell', literalPattern(canonical), 'allow'))).toBe(
        'default',
      );
    },
  );

  test.each([
    [String.raw`touch a\  b`, String.raw`touch a\ b`],
    [String.raw`touch a\ `, String.raw`touch a\\`],
    [String.raw`echo "a\"  b"`, String.raw`echo "a\" b"`],
    [String.raw`echo "a\\"`, String.raw`echo "a\\ "`],
  ])('match the text %j by its own pattern, and not %j', (text, otherText) => {
    expect(matchesCommand(literalPattern(text), text)).toBe(true);
    expect(matchesCommand(literalPattern(text), otherText)).toBe(false);
  });

  test('match a wildcard literally after a backslash', () => {
    expect(effectOf(shell('ls *'), rule('shell', String.raw`ls \*`, 'allow'))).toBe('allow');
    expect(effectOf(shell('ls x'), rule('shell', String.raw`ls \*`, 'allow'))).toBe('default');
  });
});

describe('rules for paths', () => {
  test.each([
    ['src/**', 'src/a.ts', 'allow'],
    ['src/**', 'src/deep/a.ts', 'allow'],
    ['src/**', './src//a.ts', 'allow'],
    ['src/*', 'src/deep/a.ts', 'default'],
    ['src/**', 'srcx/a.ts', 'default'],
    ['src/**', 'SRC/a.ts', 'default'],
    ['src/**/*.ts', 'src/a.ts', 'allow'],
    ['src/**/*.ts', 'src/x/a.js', 'default'],
    ['src**/x', 'srcx', 'default'],
    ['src**/x', 'src/x', 'allow'],
    ['src**/x', 'src-a/b/x', 'allow'],
    ['src/**', 'src/\n/a', 'allow'],
    ['src/?/x', 'src///x', 'default'],
    // A backtracking match of these takes seconds or more.
    ['**/a/**/b/**/c', 'a/b/'.repeat(1000), 'default'],
    ['*a*a*a*a*b', 'a'.repeat(4000), 'default'],
    ['*.md', 'docs/a.md', 'default'],
    ['**/*.md', 'docs/a.md', 'allow'],
    ['a+(b).txt', 'a+(b).txt', 'allow'],
    ['a.b', 'axb', 'default'],
    ['my-app/**', 'my-app/a-b.ts', 'allow'],
    ['my-app/**', 'my_app/a.ts', 'default'],
  ] as const)('match %s against %s: %s', (pattern, path, effect) => {
    expect(effectOf(write(path), rule('files.write', pattern, 'allow'))).toBe(effect);
  });

  test.each([
    ['secret/**', 'Secret/x'],
    ['keys/\\*s', 'KEYS/*\u017F'],
    ['\u212Aeys/?', 'keys/\u{1D11E}'],
  ])('deny %s in any letter case, such as %s', (pattern, path) => {
    expect(effectOf(write(path), rule('files', pattern, 'deny'))).toBe('deny');
  });

  test.each([
    ['private/**', 'private', 'deny'],
    ['private/**', 'Private/x', 'deny'],
    ['private/**', '.', 'ask'],
    ['private/**', 'src', 'allow'],
    ['src/private/**', 'SRC', 'ask'],
    ['src/private/**', 'src/other', 'allow'],
    ['**/private/*', 'src', 'ask'],
    ['src/*/private.txt', 'src/a', 'ask'],
    ['src/*/private.txt', 'src/a/b', 'allow'],
    ['src/private.txt', 'src', 'ask'],
    ['src/private.txt', 'src/a', 'allow'],
  ] as const)(
    'deny %s, so that a search of %s, which another rule allows, has the effect %s',
    (pattern, path, effect) => {
      const needs: Permission[] = [{ tool: 'files.search', path, includesBelow: true }];
      expect(effectOf(needs, rule('files', '**', 'allow'), rule('files', pattern, 'deny'))).toBe(effect);
    },
  );

  test.each(['private/**', 'private/*'])('forbid the listing of a folder with %s', (pattern) => {
    const needs: Permission[] = [{ tool: 'files.list', path: 'private' }];
    expect(effectOf(needs, rule('files', pattern, 'deny'))).toBe('deny');
    expect(effectOf(needs, rule('files', pattern, 'allow'))).toBe('default');
  });

  test('allow a protected file only by its own name', () => {
    expect(effectOf(write('package.json', true), rule('files', '**', 'allow'))).toBe('default');
    expect(effectOf(write('package.json', true), rule('files', null, 'allow'))).toBe('default');
    expect(effectOf(write('package.json', true), rule('files', 'package.json', 'allow'))).toBe('allow');
  });

  test('match one action, a whole plugin, or several tools', () => {
    for (const tool of ['files', 'files.write', 'files.*', '*'])
      expect(effectOf(write('a'), rule(tool, null, 'deny'))).toBe('deny');
    for (const tool of ['files.read', 'file', 'shell'])
      expect(effectOf(write('a'), rule(tool, null, 'deny'))).toBe('default');
  });

  test('match the names of tools with a dash', () => {
    const needs: Permission[] = [{ tool: 'mcp.github-create_issue' }];
    expect(effectOf(needs, rule('mcp.github-*', null, 'deny'))).toBe('deny');
    expect(effectOf(needs, rule('mcp.gitlab-*', null, 'deny'))).toBe('default');
  });
});
