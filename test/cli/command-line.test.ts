// Parsing and help of a command, as derived from its table entry, without a process.
import { describe, expect, test } from 'vitest';
import { action, type Command } from '../../src/cli/command-line/command.ts';
import { renderHelp } from '../../src/cli/command-line/help.ts';
import { runCommand } from '../../src/cli/command-line/parse.ts';
import { integer, list, SettingError } from '../../src/kernel/settings.ts';

const settings = {
  size: integer('BOX_SIZE', 3, 'How large it is.', { flag: 'size', min: 1, max: 9 }),
  labels: list('BOX_LABELS', 'What is written on it.', { flag: 'label', isRepeatable: true }),
};

/** A command whose actions record how they were called. */
function boxCommand(calls: object[]): Command {
  const record = async ({
    options,
    arguments: words,
    settings: flags,
  }: Record<'options' | 'arguments' | 'settings', object>) => {
    calls.push({ options, words, flags });
    return 0;
  };
  return {
    description: ['Packs a box.'],
    actions: [
      action({ settings: { table: settings }, run: record }),
      action({
        path: 'item add',
        summary: 'Add an item.',
        arguments: { name: { placeholder: 'NAME' }, rest: { placeholder: 'KEY=VALUE', isRest: true } },
        options: { fragile: { kind: 'switch', summary: 'Handle with care.' } },
        run: record,
      }),
      action({
        path: 'item color',
        summary: 'Paint the items.',
        arguments: { color: { placeholder: 'COLOR', choices: ['red', 'green'] } },
        options: { coats: { kind: 'value', placeholder: 'NUMBER', summary: 'How many coats.' } },
        run: record,
      }),
      action({ path: 'item burn', isInternal: true, run: record }),
    ],
  };
}

async function runBox(...words: string[]): Promise<object | undefined> {
  const calls: object[] = [];
  const code = await runCommand('box', boxCommand(calls), words, {
    env: {},
    print: () => {},
    printError: () => {},
    isOutputOpen: () => true,
    output: { isTerminal: false, write: async () => {} },
  });
  expect(code).toBe(0);
  return calls[0];
}

describe('runCommand', () => {
  test('passes arguments, remaining words and switches to the action', async () => {
    expect(await runBox('item', '--fragile', 'add', 'vase', 'a=1', 'b=2')).toEqual({
      options: { fragile: true },
      words: { name: 'vase', rest: ['a=1', 'b=2'] },
      flags: {},
    });
  });

  test('passes settings apart from the options', async () => {
    expect(await runBox('--size', '4')).toEqual({ options: {}, words: {}, flags: { size: '4' } });
  });

  test('joins the values of a repeatable option by commas', async () => {
    expect(await runBox('--label', 'a', '--label', 'b')).toMatchObject({ flags: { label: 'a,b' } });
  });

  test.each([
    [['item'], 'use "townhall box item add NAME [KEY=VALUE ...]" or "townhall box item color red|green"'],
    [['item', 'ad'], 'Did you mean "townhall box item add"?'],
    [['item', 'add'], 'use "townhall box item add NAME [KEY=VALUE ...]"; see --help.'],
    [['item', 'color', 'gren'], 'Did you mean "townhall box item color green"?'],
    [['item', 'color', 'red', 'twice'], '"twice" is not part of this command'],
    [['itm'], '"itm" is not part of this command; see --help. Did you mean "townhall box item"?'],
    [['item', 'add', 'vase', '--coats', '2'], '--coats belongs to "townhall box item color red|green"'],
    [['--siz', '4'], 'there is no option --siz here; see --help. Did you mean --size?'],
    [['--size'], 'the option --size takes a value.'],
    [['item', 'add', 'vase', '--fragile=yes'], 'the option --fragile takes no value.'],
    [['--size', '1', '--size', '2'], 'the option --size is set twice.'],
  ])('refuses %j and says what to type', async (words, sentence) => {
    const refusal = runBox(...words);
    await expect(refusal).rejects.toThrow(SettingError);
    await expect(refusal).rejects.toThrow(sentence);
  });
});

describe('renderHelp', () => {
  const help = renderHelp('box', boxCommand([]));

  test('lists the actions with their arguments', () => {
    expect(help).toMatch(/^Usage: townhall box \[OPTIONS\]\n {7}townhall box COMMAND \[OPTIONS\]\n/);
    expect(help).toMatch(/^ {2}townhall box item color red\|green +Paint the items\.$/m);
  });

  test('names the actions of an option that only some accept', () => {
    expect(help).toContain('  --coats NUMBER  item color: how many coats.');
  });

  test('lists the settings with their defaults', () => {
    expect(help).toMatch(/--size +BOX_SIZE +How large it is\. \(3\)/);
  });

  test('hides internal actions', () => {
    expect(help).not.toContain('burn');
  });
});
