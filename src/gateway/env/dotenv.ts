// Reads the text of a `.env` file with dotenv's rules for comments, `export`, quotes and values of several
// lines. Unlike Node's own parser it never passes over a line in silence: what it cannot read it names.

export interface DotenvEntry {
  key: string;
  value: string;
  /** Where the entry begins, from 1. */
  line: number;
}

export interface DotenvFault {
  line: number;
  message: string;
}

export interface Dotenv {
  /** In the order of the text; a key may be there twice, and the later one counts. */
  entries: DotenvEntry[];
  faults: DotenvFault[];
}

const quotes = ['"', "'", '`'];

export function parseDotenv(text: string): Dotenv {
  const lines = text
    .replace(/^\uFEFF/, '')
    .replace(/\r\n?/g, '\n')
    .split('\n');
  const entries: DotenvEntry[] = [];
  const faults: DotenvFault[] = [];
  for (let at = 0; at < lines.length; at += 1) {
    const line = at + 1;
    const source = (lines[at] ?? '').trimStart();
    if (source === '' || source.startsWith('#')) continue;
    const head = /^(?:export\s+)?([\w.-]+)(?:\s*=|:\s)/.exec(source);
    if (!head?.[1]) {
      faults.push({ line, message: 'is not of the form KEY=value' });
      continue;
    }
    const rest = source.slice(head[0].length).trimStart();
    const quote = quotes.find((mark) => rest.startsWith(mark));
    if (quote === undefined) {
      // An unquoted value ends at the first `#`, as dotenv has it.
      entries.push({ key: head[1], value: (rest.split('#', 1)[0] ?? '').trim(), line });
      continue;
    }
    const quoted = readQuoted(rest, quote, lines, at);
    if (typeof quoted === 'string') {
      faults.push({ line, message: quoted });
      // Whatever an unclosed quote was to hold cannot be told from what follows it.
      if (quoted === unclosed) break;
      continue;
    }
    at = quoted.lastLine;
    entries.push({ key: head[1], value: quote === '"' ? expand(quoted.value) : quoted.value, line });
  }
  return { entries, faults };
}

const unclosed = 'opens a quote that is never closed';

/** The text between the quotes, over as many lines as it takes, or what is wrong with it. */
function readQuoted(
  first: string,
  quote: string,
  lines: readonly string[],
  at: number,
): { value: string; lastLine: number } | string {
  const pieces: string[] = [];
  for (let index = at; index < lines.length; index += 1) {
    const piece = index === at ? first.slice(1) : (lines[index] ?? '');
    const end = closing(piece, quote);
    if (end < 0) {
      pieces.push(piece);
      continue;
    }
    const after = piece.slice(end + 1).trim();
    if (after !== '' && !after.startsWith('#')) return 'has text behind its closing quote';
    return { value: [...pieces, piece.slice(0, end)].join('\n'), lastLine: index };
  }
  return unclosed;
}

// A quote behind a backslash is part of the value.
function closing(text: string, quote: string): number {
  let end = text.indexOf(quote);
  while (end > 0 && text[end - 1] === '\\') end = text.indexOf(quote, end + 1);
  return end;
}

function expand(value: string): string {
  return value.replaceAll('\\n', '\n').replaceAll('\\r', '\r');
}
