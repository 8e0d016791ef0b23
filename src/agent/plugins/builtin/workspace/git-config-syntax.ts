// Parses the syntax of git's configuration files: git-config(1), section "Syntax".

export interface GitSetting {
  /** In lower case, without its section. */
  key: string;
  value: string;
}

/** The settings that have a value. Of a line that git would refuse, the part before the error counts. */
export function parseGitConfig(config: string): GitSetting[] {
  const text = config.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  // A section header such as `[includeIf "gitdir:~/work/"]`, or a key and its `=`.
  const item = /[^\S\n]*(?:\[(?:[^\]"\n]|"(?:\\.|[^"\\\n])*")*\]|([A-Za-z][\w-]*)[ \t]*=)/y;
  const settings: GitSetting[] = [];
  while (item.lastIndex < text.length) {
    const start = item.lastIndex;
    const match = item.exec(text);
    if (match === null) {
      item.lastIndex = lineEnd(text, start) + 1;
      continue;
    }
    const key = match[1]?.toLowerCase();
    if (key === undefined) continue;
    const { value, end } = readValue(text, item.lastIndex);
    settings.push({ key, value });
    item.lastIndex = end + 1;
  }
  return settings;
}

const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', b: '\b' };

/** The value that begins at `start`, and the index of the line break after it. */
function readValue(text: string, start: number): { value: string; end: number } {
  let value = '';
  /** The length without spaces at the end, which count only in quotes. */
  let length = 0;
  let isQuoted = false;
  let index = start;
  for (; index < text.length && text[index] !== '\n'; index += 1) {
    let char = text[index] as string;
    if (!isQuoted && (char === '#' || char === ';')) {
      index = lineEnd(text, index);
      break;
    }
    if (!isQuoted && /\s/.test(char)) {
      if (value !== '') value += char;
      continue;
    }
    if (char === '"') {
      isQuoted = !isQuoted;
      char = '';
    } else if (char === '\\') {
      index += 1;
      const nextChar = text[index] ?? '';
      // A backslash at the end of a line continues the value on the next line.
      char = nextChar === '\n' ? '' : (escapes[nextChar] ?? nextChar);
    }
    value += char;
    length = value.length;
  }
  return { value: value.slice(0, length), end: index };
}

function lineEnd(text: string, index: number): number {
  const end = text.indexOf('\n', index);
  return end < 0 ? text.length : end;
}
