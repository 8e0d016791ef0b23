// Commands that ask questions, on a real terminal.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { hasTerminal, spawnOnTerminal } from './script-terminal.ts';

if (!hasTerminal) console.warn('SKIPPED: the terminal tests need `script` of util-linux, which is not here.');

/** Runs a command on a terminal and types each answer once its question appears. */
async function runOnTerminal(
  folder: string,
  words: readonly string[],
  answers: readonly [question: string, answer: string][],
): Promise<{ code: number; screen: string }> {
  const env = { PATH: process.env['PATH'] ?? '', HOME: folder, TERM: 'dumb' };
  const child = spawnOnTerminal(words, { cwd: folder, env });
  let screen = '';
  let answeredLength = 0;
  const remainingAnswers = [...answers];
  child.stdout.on('data', (piece: Buffer) => {
    screen += piece.toString('utf8');
    const [next] = remainingAnswers;
    if (next === undefined || !screen.slice(answeredLength).includes(next[0])) return;
    remainingAnswers.shift();
    answeredLength = screen.length;
    child.stdin.write(`${next[1]}\r`);
  });
  const code = await new Promise<number>((resolve) =>
    child.on('close', (exitCode) => resolve(exitCode ?? -1)),
  );
  expect(remainingAnswers, `questions that never came, in:\n${screen}`).toEqual([]);
  return { code, screen };
}

// The terminal is under test and not the database, so one engine is enough.
describe.skipIf(!hasTerminal || inject('databaseSource')?.engine === 'postgres')(
  'townhall admin, on a terminal',
  () => {
    let folder: string;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'townhall-terminal-'));
    });
    afterAll(() => rm(folder, { recursive: true, force: true }));

    /** Answers the questions of `townhall admin setup` or `townhall admin reset`. */
    const runAdmin = (
      action: 'setup' | 'reset',
      adminId: string,
      { password, repetition = password }: { password: string; repetition?: string },
    ) =>
      runOnTerminal(
        folder,
        ['admin', action],
        [
          ['Administrator ID:', adminId],
          ['Password:', password],
          ['Again:', repetition],
        ],
      );

    test('setup refuses a password of 11 characters', async () => {
      const { code, screen } = await runAdmin('setup', 'ada', { password: 'elevenchars' });
      expect(code).toBe(1);
      expect(screen).toMatch(/12 characters/);
    });

    test('setup is cancelled by Ctrl-D at a question', async () => {
      const { code, screen } = await runOnTerminal(
        folder,
        ['admin', 'setup'],
        [['Administrator ID:', '\u0004']],
      );
      expect(screen).toContain('Cancelled; nothing was changed.');
      expect(code).toBe(1);
    });

    test('setup refuses two different passwords', async () => {
      const { code, screen } = await runAdmin('setup', 'ada', {
        password: 'twelve-chars',
        repetition: 'twelve-charz',
      });
      expect(code).toBe(1);
      expect(screen).toMatch(/differ/);
    });

    test('setup asks for the ID and twice for the hidden password', async () => {
      const { code, screen } = await runAdmin('setup', 'ada', { password: 'twelve-chars' });
      expect(screen).toMatch(/administrator ada is set up/);
      expect(screen).not.toContain('twelve-chars');
      expect(code).toBe(0);
    });

    test('setup refuses a second administrator', async () => {
      const { code } = await runAdmin('setup', 'eve', { password: 'another-password' });
      expect(code).toBe(1);
    });

    test('reset replaces the credentials of the one administrator', async () => {
      const { code, screen } = await runAdmin('reset', 'grace', { password: 'another-password' });
      expect(screen).toMatch(/The administrator is now grace/);
      expect(code).toBe(0);
    });
  },
);
