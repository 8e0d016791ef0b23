// `--jq`, on a command that prints JSON documents, without a process.
import { describe, expect, test } from 'vitest';
import { action, jsonOption, type Command } from '../../src/cli/command-line/command.ts';
import { renderHelp } from '../../src/cli/command-line/help.ts';
import { runCommand } from '../../src/cli/command-line/parse.ts';
import { SettingError } from '../../src/kernel/settings.ts';

const list = JSON.stringify({
  items: [
    { id: 'a', size: 1 },
    { id: 'b', size: 2 },
  ],
});

interface Run {
  code: number;
  output: string[];
  errors: string[];
  /** How often the command ran. */
  runs: number;
}

/** Runs a command that prints the documents and takes `--json`. */
async function runPrinting(
  documents: readonly string[],
  words: readonly string[],
  { isTerminal = false, code = 0 } = {},
): Promise<Run> {
  const run: Run = { code: 0, output: [], errors: [], runs: 0 };
  const command: Command = {
    description: ['Prints documents.'],
    actions: [
      action({
        path: 'list',
        options: { json: jsonOption },
        async run({ options, print }) {
          run.runs += 1;
          expect(options.json).toBe(true);
          documents.forEach((document) => print(document));
          return code;
        },
      }),
      action({ path: 'clear', run: async () => 0 }),
    ],
  };
  run.code = await runCommand('box', command, words, {
    env: {},
    print: (line) => void run.output.push(line),
    printError: (line) => void run.errors.push(line),
    isOutputOpen: () => true,
    output: { isTerminal, write: async () => {} },
  });
  return run;
}

describe('--jq', () => {
  test('prints strings without quotes', async () => {
    expect((await runPrinting([list], ['list', '--jq', '.items[].id'])).output).toEqual(['a', 'b']);
  });

  test('prints other values as one line of JSON each', async () => {
    const { output } = await runPrinting([list], ['list', '--jq', '.items[0], (.items | length), null']);
    expect(output).toEqual(['{"id":"a","size":1}', '2', 'null']);
  });

  test('indents objects for a terminal', async () => {
    const { output } = await runPrinting([list], ['list', '--jq', '.items[0]'], { isTerminal: true });
    expect(output).toEqual(['{\n  "id": "a",\n  "size": 1\n}']);
  });

  test('keeps the digits of large numbers', async () => {
    const { output } = await runPrinting(['{"n":12345678901234567890,"m":2.50}'], ['list', '--jq', '.n, .m']);
    expect(output).toEqual(['12345678901234567890', '2.50']);
  });

  test('keeps spaces and empty strings', async () => {
    const { output } = await runPrinting(['["", " x ", ""]'], ['list', '--jq', '.[]']);
    expect(output).toEqual(['', ' x ', '']);
  });

  test('shows no control character of a value on a terminal', async () => {
    const document = JSON.stringify(['a\u001B[31m', 'b\tc']);
    const { output } = await runPrinting([document], ['list', '--jq', '.[]'], { isTerminal: true });
    expect(output).toEqual(['a\\u001b[31m', 'b\tc']);
  });

  test('filters each document of a command that prints several', async () => {
    const { output } = await runPrinting(['{"n":1}', '{"n":2}'], ['list', '--jq', 'select(.n > 1).n']);
    expect(output).toEqual(['2']);
  });

  test('takes an expression that begins with a minus', async () => {
    expect((await runPrinting(['1'], ['list', '--jq=-1'])).output).toEqual(['-1']);
  });

  test('refuses an invalid expression before the command runs', async () => {
    const run = runPrinting([list], ['list', '--jq', '.items[']);
    await expect(run).rejects.toThrow(SettingError);
    await expect(run).rejects.toThrow(
      /^--jq: syntax error, unexpected end of file at column 7:\n +\.items\[\n +\^$/,
    );
  });

  test('names an unknown function', async () => {
    await expect(runPrinting([list], ['list', '--jq', 'size(.)'])).rejects.toThrow(
      /^--jq: size\/1 is not defined at column 1/,
    );
  });

  test('fails when the expression does not fit the document', async () => {
    const { code, output, errors } = await runPrinting([list], ['list', '--jq', '.items[].id[]']);
    expect(code).toBe(1);
    expect(output).toEqual([]);
    expect(errors).toEqual(['--jq: Cannot iterate over string ("a")']);
  });

  test('keeps the exit code of the command', async () => {
    expect((await runPrinting([list], ['list', '--jq', '.'], { code: 3 })).code).toBe(3);
  });

  test('reads no variable of the environment', async () => {
    process.env['SECRET_OF_TEST'] = 'secret';
    try {
      const { output } = await runPrinting(['null'], ['list', '--jq', '$ENV.SECRET_OF_TEST']);
      expect(output).toEqual(['null']);
    } finally {
      delete process.env['SECRET_OF_TEST'];
    }
  });

  test('belongs to the actions with --json', async () => {
    await expect(runPrinting([list], ['clear', '--jq', '.'])).rejects.toThrow('--jq belongs to');
  });

  test('is in the help of a command with --json', () => {
    const command: Command = {
      description: [],
      actions: [action({ options: { json: jsonOption }, run: async () => 0 })],
    };
    expect(renderHelp('box', command)).toMatch(/--jq EXPRESSION +Filter the JSON with a jq/);
  });
});
