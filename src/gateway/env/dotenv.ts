// Parses `.env` files with dotenv's rules for comments, `export`, quotes and multi-line
// values. Unlike Node's own parser, it reports every line that it cannot read.

export interface DotenvEntry {
  key: string;
  value: string;
  /** The first line of the entry, counted from 1. */
  line: number;
}

export interface DotenvError {
  line: number;
  message: string;
}

export interface Dotenv {
  /** The entries in the order of the text. If a key occurs twice, the later value counts. */
  entries: DotenvEntry[];
  errors: DotenvError[];
}

const quotes = ['"', "'", '`'];

export function parseDotenv(text: string): Dotenv {
  const lines = text
    .replace(/^\uFEFF/, '')
    .replace(/\r\n?/g, '\n')
    .split('\n');
  const entries: DotenvEntry[] = [];
  const errors: DotenvError[] = [];
  for (let lineIndex = 0; lineIndex < lines.length; lineIndex += 1) {
    const line = lineIndex + 1;
    const source = (lines[lineIndex] ?? '').trimStart();
    if (source === '' || source.startsWith('#')) continue;
    const keyMatch = /^(?:export\s+)?([\w.-]+)(?:\s*=|:\s)/.exec(source);
    if (!keyMatch?.[1]) {
      errors.push({ line, message: 'does not have the form KEY=value' });
      continue;
    }
    const valueText = source.slice(keyMatch[0].length).trimStart();
    const quote = quotes.find((mark) => valueText.startsWith(mark));
    if (quote === undefined) {
      // An unquoted value ends at the first `#`, as in dotenv.
      entries.push({ key: keyMatch[1], value: (valueText.split('#', 1)[0] ?? '').trim(), line });
      continue;
    }
    const quotedValue = readQuoted(valueText, quote, lines, lineIndex);
    if (typeof quotedValue === 'string') {
      errors.push({ line, message: quotedValue });
      // The end of an unclosed quote is unknown, so the rest of the text cannot be parsed.
      if (quotedValue === unclosedQuote) break;
      continue;
    }
    lineIndex = quotedValue.lastLine;
    entries.push({
      key: keyMatch[1],
      value: quote === '"' ? expand(quotedValue.value) : quotedValue.value,
      line,
    });
  }
  return { entries, errors };
}

const unclosedQuote = 'opens a quote that is never closed';

/** The text between the quotes, which may span lines, or an error message. */
function readQuoted(
  firstLine: string,
  quote: string,
  lines: readonly string[],
  firstIndex: number,
): { value: string; lastLine: number } | string {
  const pieces: string[] = [];
  for (let index = firstIndex; index < lines.length; index += 1) {
    const piece = index === firstIndex ? firstLine.slice(1) : (lines[index] ?? '');
    const end = closingQuote(piece, quote);
    if (end < 0) {
      pieces.push(piece);
      continue;
    }
    const after = piece.slice(end + 1).trim();
    if (after !== '' && !after.startsWith('#')) return 'has text after its closing quote';
    return { value: [...pieces, piece.slice(0, end)].join('\n'), lastLine: index };
  }
  return unclosedQuote;
}

// A quote after a backslash is part of the value.
function closingQuote(text: string, quote: string): number {
  let end = text.indexOf(quote);
  while (end > 0 && text[end - 1] === '\\') end = text.indexOf(quote, end + 1);
  return end;
}

function expand(value: string): string {
  return value.replaceAll('\\n', '\n').replaceAll('\\r', '\r');
}
