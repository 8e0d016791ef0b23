// The paths that the configuration of a repository names, and the syntax of its files. git itself is the
// reference for the syntax.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { parseGitConfig } from '../../../src/agent/plugins/builtin/workspace/git-config-syntax.ts';
import { pathsOfConfig } from '../../../src/agent/plugins/builtin/workspace/git-config.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'townhall-git-config-'));
  mkdirSync(path.join(root, '.git'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(root, { recursive: true, force: true });
});

/** The settings with a value that git reads; their keys have no section. */
function settingsOfGit(config: string): { key: string; value: string }[] {
  const file = path.join(root, 'config');
  writeFileSync(file, config);
  const list = execFileSync('git', ['config', '-f', file, '-z', '--list'], { encoding: 'utf8' });
  return list
    .split('\0')
    .filter((entry) => entry.includes('\n'))
    .map((entry) => {
      const [name = '', ...lines] = entry.split('\n');
      return { key: name.slice(name.lastIndexOf('.') + 1), value: lines.join('\n') };
    });
}

describe('parseGitConfig', () => {
  const configs: Record<string, string> = {
    'a plain value': '[core]\n\thooksPath = tools/hooks  \n',
    'a key on the line of its section': '[core] hooksPath = hooks\n[a][b]x=1',
    'keys in any case': '[CORE]\nHooksPath=hooks',
    'quotes around spaces': '[core]\n\thooksPath = "my hooks "\n',
    'quotes within a value': '[core]\n\thooksPath = tools/"my hooks"/git\n',
    'an empty pair of quotes': '[core]\n\thooksPath = a ""\n',
    escapes: '[a]\nx = a\\\\b\\"c\\td\\ne\n',
    'a continued value': '[core]\n\thooksPath = ho\\\noks\n\tbare = false\n',
    'a value continued in quotes': '[core]\n\thooksPath = "my \\\n  hooks"\n',
    'a continued value with a setting in it': '[a]\nx = 1 \\\ny = 2\nz = 3\n',
    'a continuation with CRLF': '[core]\r\n\thooksPath = ho\\\r\noks\r\n\tbare = false\r\n',
    'a backslash at the end of the file': '[a]\nx = 1\\',
    comments: '# a\n; b\n[a] # x = 0\nx = 1 ; y = 2\ny = "#1" # z\\\nz = 3 #4\n',
    'a subsection with brackets and quotes': '[a "x]y\\"z"] k = 1\n',
    'a key without a value': '[a]\n\tbare\n\tx = \n\ty = 1\n',
    'a byte order mark': '\uFEFF[core]\nhooksPath = hooks\n',
  };

  test.each(Object.entries(configs))('reads %s like git', (_, config) => {
    expect(parseGitConfig(config)).toEqual(settingsOfGit(config));
  });

  test('continues after lines that git refuses', () => {
    const config = '[core\nx = "a b\n=\nbad key = 1\n[b] y = \\q\n';
    expect(parseGitConfig(config)).toEqual([
      { key: 'x', value: 'a b' },
      { key: 'y', value: 'q' },
    ]);
  });

  test('reads long files in linear time', () => {
    const size = 256 * 1024;
    const startMs = performance.now();
    for (const text of ['\n', ' ', '[', '["', '[a]', '[""', '\\', 'a', 'x="\\\n'])
      parseGitConfig(text.repeat(size / text.length));
    expect(performance.now() - startMs).toBeLessThan(5_000);
  });
});

describe('pathsOfConfig', () => {
  async function pathsOf(config: string): Promise<string[]> {
    const gitPath = path.join(root, '.git');
    writeFileSync(path.join(gitPath, 'config'), config);
    return (await pathsOfConfig(gitPath)).map((name) => path.relative(root, name));
  }

  test.each([
    ['with quoted spaces', 'hooksPath = "my hooks"', 'my hooks'],
    ['with spaces', 'hooksPath = my hooks # of git', 'my hooks'],
    ['with an escape', 'hooksPath = my\\"hooks', 'my"hooks'],
    ['on two lines', 'hooksPath = tools/\\\nhooks', 'tools/hooks'],
  ])('contains a path of hooks %s', async (_, setting, hooksPath) => {
    expect(await pathsOf(`[core]\n\t${setting}\n`)).toContain(hooksPath);
  });

  test('contains the paths of an included file with a quoted name', async () => {
    writeFileSync(path.join(root, 'my config'), '[core]\n\thooksPath = "git hooks"\n');
    const paths = await pathsOf('[include]\n\tpath = "../my config"\n');
    expect(paths).toEqual(expect.arrayContaining(['my config', 'git hooks']));
  });

  test('contains a path of hooks in the home folder', async () => {
    vi.stubEnv('HOME', root);
    expect(await pathsOf('[core]\n\thooksPath = ~/hooks\n')).toContain('hooks');
  });

  test('contains an existing program on a continued line', async () => {
    writeFileSync(path.join(root, 'filter.sh'), '');
    expect(await pathsOf('[filter "x"]\n\tclean = sh \\\n\t\t./filter.sh\n')).toContain('filter.sh');
  });
});
