// The screen of `townhall start`.
import { stripVTControlCharacters } from 'node:util';
import { describe, expect, test } from 'vitest';
import { welcome, type Welcome } from '../../../src/cli/servers/welcome.ts';

const screen: Welcome = {
  version: '0.1.0',
  gatewayUrl: 'http://127.0.0.1:43127',
  agentUrl: 'http://127.0.0.1:5314',
  consoleUrl: `http://127.0.0.1:45315/open?code=${'x'.repeat(22)}`,
  isInteractive: true,
  userTokenFile: 'data/local.token',
  agentTokenFile: 'data/agent/agent.token',
  administrator: { adminId: 'admin', password: 'abcde-abcde-abcde-abcde' },
  shell: 'off',
  program: 'npm run townhall --',
  notice: undefined,
};
const linesOf = (changes: Partial<Welcome> = {}): string[] =>
  welcome({ ...screen, ...changes }).map(stripVTControlCharacters);

describe('welcome', () => {
  test('has ten lines and two empty ones', () => {
    const lines = linesOf();
    expect([lines.filter((line) => line !== '').length, lines.length]).toEqual([10, 12]);
  });

  test.each<[string, Partial<Welcome>]>([
    ['at the first start', {}],
    ['at the second start', { administrator: undefined }],
    ['with a notice', { notice: 'Every caller on this machine can log in. '.repeat(4).trim() }],
  ])('is narrower than 80 columns %s', (_, changes) => {
    expect(Math.max(...linesOf(changes).map((line) => line.length))).toBeLessThan(80);
  });

  test('aligns what it lists', () => {
    const rows = linesOf().filter((line) => /^ {2}[a-z]+ {2,}/.test(line));
    expect(rows.map((line) => /^ {2}\S+ +/.exec(line)?.[0].length)).toEqual(rows.map(() => 11));
    expect(rows).toHaveLength(6);
  });

  test.each([
    ['off', /:5314 \(shell off: npm run townhall -- doctor\)$/m],
    ['unsafe', /:5314 \(runs commands without a sandbox\)$/m],
    ['sandboxed', /:5314$/m],
  ] as const)('shows the state of the shell of the agent: %s', (shell, line) => {
    expect(linesOf({ shell }).join('\n')).toMatch(line);
  });

  test('says how to reset the administrator at the second start', () => {
    expect(linesOf({ administrator: undefined }).join('\n')).toContain(
      'admin    new password: npm run townhall -- admin reset',
    );
  });

  test('mentions the Enter key on a terminal only', () => {
    expect(linesOf()[0]).toContain('Enter shows a new console link');
    expect(linesOf({ isInteractive: false })[0]).toBe('Townhall 0.1.0 is running. Ctrl-C ends it.');
  });
});
