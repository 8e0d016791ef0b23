// The completion scripts, each loaded by its own shell and triggered as by the Tab key. A shell
// that is not installed is skipped with a warning.
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { listen } from '../support/local-server.ts';
import { runInProcess } from './in-process.ts';
import { runTownhall } from './townhall.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-completions-'));
  // Stands in for `townhall`, which the scripts call for the ids of a server. The file `asked` shows
  // that a script made such a call.
  await mkdir(join(folder, 'bin'));
  const program = [
    '#!/bin/sh',
    `[ "$*" = 'completions words keys revoke' ] && printf 'tok_1\\tci\\ntok_2\\tdeploy bot\\n'`,
    `[ "$*" = 'completions words users unblock' ] && printf '%s\\n' 'usr_$(touch\${IFS}expanded)'`,
    `[ "$*" = 'completions words users remove' ] && touch asked`,
    '',
  ].join('\n');
  await writeFile(join(folder, 'bin/townhall'), program, { mode: 0o755 });
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const fileOf = { bash: 'townhall.bash', zsh: '_townhall', fish: 'townhall.fish' };
type Shell = keyof typeof fileOf;

/** Runs a program in the shell without the user's configuration. */
function runInShell(shell: Shell, args: readonly string[]): string[] {
  const flags = { bash: ['--norc'], zsh: ['-f'], fish: ['--no-config'] }[shell];
  const env = { PATH: `${folder}/bin:/usr/local/bin:/usr/bin:/bin`, HOME: folder, TERM: 'dumb' };
  return execFileSync(shell, [...flags, ...args], { cwd: folder, env, encoding: 'utf8', timeout: 60_000 })
    .split('\n')
    .filter((line) => line !== '');
}

// zsh completes only on a terminal, so the program starts a second zsh on a pseudo-terminal. Its
// overridden `compadd` prints each match.
const zshProgram = `
zmodload zsh/zpty
zpty child zsh -f -i
zpty -w child 'PROMPT=; stty -echo; autoload -U compinit'
if [[ $2 == sourced ]]; then
  zpty -w child 'compinit -D -u; source ./_townhall'
else
  zpty -w child 'fpath=($PWD $fpath); compinit -D -u'
fi
zpty -w child '
  compadd() {
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits
    builtin compadd -A hits "$@"
    [[ -n $hits ]] && print -l -- "HIT "$^hits
  }
  finish() { print DONE; exit }
  comppostfuncs=(finish)
  bindkey "^I" complete-word
  print READY'
while zpty -r child line; do [[ $line == *READY* && $line != *print* ]] && break; done
zpty -w -n child "$1"$'\\t'
while zpty -r child line; do
  line=\${line%%$'\\r\\n'}
  [[ $line == *HIT* ]] && print -r -- \${line##*HIT }
  [[ $line == *DONE* ]] && break
done
`;

/** Words that the Tab key offers after the line. */
const completionsOf: Record<Shell, (line: string) => string[]> = {
  bash(line) {
    const words = line.split(' ');
    const program = [
      'source ./townhall.bash',
      `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')})`,
      `COMP_CWORD=${words.length - 1}`,
      '_townhall',
      'printf "%s\\n" "${COMPREPLY[@]}"',
    ];
    return runInShell('bash', ['-c', program.join('\n')]);
  },
  zsh: (line) => runInShell('zsh', ['-c', zshProgram, 'zsh', line]),
  // fish prints a word and its description, separated by a tab.
  fish: (line) =>
    runInShell('fish', ['-c', `source ./townhall.fish; complete -C '${line}'`]).map(
      (word) => word.split('\t')[0] ?? '',
    ),
};

describe('townhall completions words', () => {
  test.each([
    ['keys revoke', '/v1/accounts/keys', { token_id: 'tok_1', name: 'ci' }, 'tok_1\tci'],
    [
      'users block',
      '/v1/accounts/users',
      { user_id: 'usr_1', email: null, display_name: 'Ada' },
      'usr_1\tAda',
    ],
  ])('prints the ids for "%s"', async (words, path, item, line) => {
    const server = createServer((request, response) => {
      const items = request.url?.startsWith(path) === true ? [item] : [];
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ items }));
    });
    const { url } = await listen(server);
    try {
      const env = { TOWNHALL_URL: url, XDG_CONFIG_HOME: folder };
      const { code, output } = await runInProcess(['completions', 'words', ...words.split(' ')], env);
      expect([code, output]).toEqual([0, [line]]);
    } finally {
      server.close();
    }
  });

  test.each(['keys revoke', 'keys list', 'nothing here'])(
    'prints nothing for "%s" without a server',
    async (words) => {
      const env = { TOWNHALL_URL: 'http://127.0.0.1:9', XDG_CONFIG_HOME: folder };
      const { code, output, errors } = await runInProcess(['completions', 'words', ...words.split(' ')], env);
      expect([code, output, errors]).toEqual([0, [], []]);
    },
  );
});

describe.each(Object.keys(fileOf) as Shell[])('townhall completions %s', (shell) => {
  const isInstalled = ['/usr/local/bin', '/usr/bin', '/bin'].some((path) => existsSync(join(path, shell)));
  if (!isInstalled) console.warn(`SKIPPED: there is no ${shell} here, so its completions are not tested.`);

  beforeAll(async () => {
    const { code, screen } = await runTownhall(['completions', shell], { cwd: folder });
    expect(code).toBe(0);
    await writeFile(join(folder, fileOf[shell]), screen);
    await writeFile(join(folder, 'a-file'), '');
  });

  test.skipIf(!isInstalled).each<[string, string[]]>([
    ['townhall ', commands.map(({ name }) => name)],
    ['townhall de', ['deploy']],
    ['townhall db ', ['migrate', 'backup', 'restore', 'compact']],
    ['townhall city ', ['status', 'stop', 'start', 'run', 'rollback', 'logs']],
    ['townhall agent token c', ['create']],
    ['townhall admin ', ['setup', 'reset', 'token']],
    ['townhall call gateway accounts.listK', ['accounts.listKeys']],
    ['townhall call agent sessions.pro', ['sessions.prompt']],
    ['townhall users b', ['balances', 'block']],
    ['townhall keys revoke ', ['tok_1', 'tok_2']],
    ['townhall keys revoke tok_2', ['tok_2']],
    ['townhall users block ', []],
    ['townhall keys list --jq', ['--jq']],
    ['townhall gateway --met', ['--metrics-host', '--metrics-port']],
    ['townhall db backup FILE --da', ['--data-dir', '--database-path', '--database-url']],
    ['townhall --', ['--help', '--version']],
  ])('completes "%s"', (line, words) => {
    expect(completionsOf[shell](line).sort()).toEqual([...words].sort());
  });

  test.skipIf(!isInstalled)('does not expand the words of a server', () => {
    expect(completionsOf[shell]('townhall users unblock ').join('')).toContain('touch');
    expect(existsSync(join(folder, 'expanded'))).toBe(false);
  });

  test.skipIf(!isInstalled)('completes options without calling a server', () => {
    expect(completionsOf[shell]('townhall users remove --ur')).toEqual(['--url']);
    expect(existsSync(join(folder, 'asked'))).toBe(false);
  });

  // In bash, files are an option of `complete` that only a terminal applies.
  test.skipIf(!isInstalled || shell === 'bash')('offers files when no fixed word can follow', () => {
    expect(completionsOf[shell]('townhall db backup a-f')).toEqual(['a-file']);
    expect(completionsOf[shell]('townhall db a-f')).toEqual([]);
  });

  test.runIf(isInstalled && shell === 'zsh')('works after "source" too', () => {
    expect(runInShell('zsh', ['-c', zshProgram, 'zsh', 'townhall db m', 'sourced'])).toEqual(['migrate']);
  });
});
