// `--jq EXPRESSION`: filters the JSON of a command with jq itself, compiled to WebAssembly.
import { packageFile, readBytes } from '../../kernel/assets.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { CommandContext } from './command.ts';
import { escapeControls } from './escape-controls.ts';

/**
 * Runs a command whose printed lines are JSON documents, and prints the results of the expression instead
 * of them. Throws a SettingError for an invalid expression before the command starts, since the command
 * may change something or cost credits. Returns 1 when the expression fails on a document.
 */
export async function withJq(
  expression: string,
  context: CommandContext,
  run: (context: CommandContext) => Promise<number>,
): Promise<number> {
  const evaluate = await compileExpression(expression);
  let hasFailed = false;
  const print = (document: string): void => {
    const { results, messages, isFailed } = evaluate(document);
    for (const result of results) context.print(formatResult(result, context.output.isTerminal));
    for (const message of messages) context.printError(isFailed ? `--jq: ${message}` : message);
    hasFailed ||= isFailed;
  };
  const code = await run({ ...context, print, isFiltered: true });
  return code === 0 && hasFailed ? 1 : code;
}

interface Evaluation {
  /** One JSON text per result. */
  results: string[];
  messages: string[];
  isFailed: boolean;
}

async function compileExpression(expression: string): Promise<(document: string) => Evaluation> {
  const file = packageFile('jq-wasm/jq.wasm');
  if (file === undefined) throw new Error('--jq needs the package jq-wasm, which is not installed.');
  const { loadJq } = await import('jq-wasm');
  const jq = await loadJq({ wasmBinary: await readBytes(file) });
  function evaluate(document: string): Evaluation {
    // `--` lets an expression begin with a minus.
    const { stdout, stderr, exitCode } = jq.raw(document, expression, ['--compact-output', '--']);
    return { results: linesOf(stdout), messages: linesOf(explainError(stderr)), isFailed: exitCode !== 0 };
  }
  // With empty input jq only compiles the expression, which reveals a syntax error.
  const { messages, isFailed } = evaluate('');
  if (isFailed) throw new SettingError(`--jq: ${messages.join('\n')}`);
  return evaluate;
}

function linesOf(text: string): string[] {
  return text === '' ? [] : text.split('\n');
}

/** Removes the names of jq's own program and files from its messages. */
function explainError(stderr: string): string {
  return stderr
    .replace(/\n*jq: \d+ compile errors?$/, '')
    .replaceAll(/^jq: (?:parse )?error(?: \(at \S+\))?: /gm, '')
    .replaceAll(' at <top-level>, line 1, column ', ' at column ')
    .replaceAll(' at <top-level>,', ' at');
}

/** Prints strings without quotes. On a terminal, which would obey control characters, these are escaped. */
function formatResult(result: string, isTerminal: boolean): string {
  const value = JSON.parse(result) as unknown;
  if (typeof value === 'string') return isTerminal ? value.replaceAll(/[^\n\t]+/g, escapeControls) : value;
  return isTerminal && typeof value === 'object' ? JSON.stringify(value, null, 2) : result;
}
