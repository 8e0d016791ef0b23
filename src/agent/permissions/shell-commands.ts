// Splits a command line of sh into its simple commands, for rules that allow some commands only. It parses a
// small part of the language on purpose, and rejects everything that could run anything but the words as they
// are written. Words may have wildcards for file names, which rules compare as text.

const operators = /^(?:&&|\|\||[;|&\n])/;
// These redirections discard output or join stdout and stderr. Any other redirection could write any file, so
// it is rejected.
const harmlessRedirection =
  /^(?:[12]?>{1,2} ?\/dev\/null|&>{1,2} ?\/dev\/null|2>&1|1>&2|>&2)(?=[ \t\n;|&]|$)/;
const reservedWords: ReadonlySet<string> = new Set([
  '!',
  '[[',
  'case',
  'coproc',
  'do',
  'done',
  'elif',
  'else',
  'esac',
  'fi',
  'for',
  'function',
  'if',
  'in',
  'select',
  'then',
  'time',
  'until',
  'while',
]);
const plainWord = /^[\w@%+=:,./~*?[\]^-]+$/;

/**
 * Returns the simple commands in a normal form: words separated by single spaces, words with other characters
 * in single quotes. Undefined for a text with expansions other than file names, redirections, assignments,
 * groups, comments or control structures.
 */
export function simpleCommands(text: string): string[] | undefined {
  const commands: string[][] = [[]];
  let remainingText = text;
  while (remainingText !== '') {
    const space = /^[ \t]+/.exec(remainingText)?.[0];
    if (space !== undefined) {
      remainingText = remainingText.slice(space.length);
      continue;
    }
    const redirection = harmlessRedirection.exec(remainingText)?.[0];
    if (redirection !== undefined) {
      remainingText = remainingText.slice(redirection.length);
      continue;
    }
    const operator = operators.exec(remainingText)?.[0];
    if (operator !== undefined) {
      commands.push([]);
      remainingText = remainingText.slice(operator.length);
      continue;
    }
    // A number before `<` or `>` is a file descriptor and not a word.
    if (/^\d+[<>]/.test(remainingText)) return undefined;
    const word = readWord(remainingText);
    if (word === undefined) return undefined;
    commands.at(-1)?.push(word.text);
    remainingText = remainingText.slice(word.length);
  }
  const nonEmptyCommands = commands.filter((words) => words.length > 0);
  const isSupported =
    nonEmptyCommands.length > 0 && nonEmptyCommands.every(([first = '']) => isCommandName(first));
  return isSupported ? nonEmptyCommands.map((words) => words.map(quoteWord).join(' ')) : undefined;
}

function isCommandName(word: string): boolean {
  return word !== '' && !reservedWords.has(word) && !/^\w+\+?=/.test(word);
}

/** One word with its quotes removed, and its length in the text; undefined when it is not supported. */
function readWord(text: string): { text: string; length: number } | undefined {
  let word = '';
  let length = 0;
  while (length < text.length) {
    const remainingText = text.slice(length);
    const piece = readPiece(remainingText);
    if (piece === undefined) return undefined;
    if (piece === null) break;
    word += piece.text;
    length += piece.length;
  }
  return { text: word, length };
}

/** A quoted or plain piece of a word; null at its end, undefined for an unsupported character. */
function readPiece(text: string): { text: string; length: number } | null | undefined {
  const [first = ''] = text;
  if (/[ \t\n;|&]/.test(first)) return null;
  if (first === "'") {
    const end = text.indexOf("'", 1);
    return end === -1 ? undefined : { text: text.slice(1, end), length: end + 1 };
  }
  if (first === '"') {
    const content = /^"((?:[^"\\$`]|\\["\\])*)"/.exec(text);
    return content === null
      ? undefined
      : { text: (content[1] ?? '').replaceAll(/\\(["\\])/g, '$1'), length: content[0].length };
  }
  if (first === '\\') {
    const escape = /^\\([^\n])/u.exec(text);
    return escape === null ? undefined : { text: escape[1] ?? '', length: escape[0].length };
  }
  const plainPiece = /^[^\s;|&'"\\$`(){}<>#!\u0000-\u001f\u007f]+/.exec(text)?.[0];
  return plainPiece === undefined ? undefined : { text: plainPiece, length: plainPiece.length };
}

function quoteWord(word: string): string {
  return plainWord.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
