// Writes JSON values as literals of TypeScript and Python, on one line if they fit, otherwise on several.

import type { Json } from './sample-request.ts';

interface Style {
  scalar: (value: string | number | boolean | null) => string;
  name: (name: string) => string;
  indent: string;
  /** Spaces within the braces of an object on one line. */
  padding: string;
  /** The trailing comma of a literal on several lines. */
  lastComma: string;
  width: number;
}

const isName = /^[A-Za-z_$][\w$]*$/;
const quoteSingle = (text: string): string =>
  `'${JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;

const typeScript: Style = {
  scalar: (value) => (typeof value === 'string' ? quoteSingle(value) : String(value)),
  name: (name) => (isName.test(name) ? name : quoteSingle(name)),
  indent: '  ',
  padding: ' ',
  lastComma: ',',
  width: 84,
};

const json: Style = {
  scalar: (value) => JSON.stringify(value),
  name: (name) => JSON.stringify(name),
  indent: '  ',
  padding: ' ',
  lastComma: '',
  width: 84,
};

const python: Style = {
  scalar(value) {
    if (value === null) return 'None';
    if (typeof value === 'boolean') return value ? 'True' : 'False';
    return JSON.stringify(value);
  },
  name: (name) => JSON.stringify(name),
  indent: '    ',
  padding: '',
  lastComma: ',',
  width: 84,
};

/** `column` is the start of the literal, `depth` the indentation of its lines. */
export function typeScriptLiteral(value: Json, column = 0, depth = 0): string {
  return renderLiteral(value, typeScript, column, depth);
}

export function pythonLiteral(value: Json, column = 0, depth = 0): string {
  return renderLiteral(value, python, column, depth);
}

/** JSON for single quotes of a shell, as a part of an indented line. */
export function shellJson(value: Json): string {
  const text = renderLiteral(value, json, 8, 1);
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function renderLiteral(value: Json, style: Style, column: number, depth: number): string {
  if (typeof value !== 'object' || value === null) return style.scalar(value);
  const singleLine = oneLine(value, style);
  if (column + singleLine.length <= style.width) return singleLine;
  const innerIndent = style.indent.repeat(depth + 1);
  const lines = Array.isArray(value)
    ? value.map((item) => `${innerIndent}${renderLiteral(item, style, innerIndent.length, depth + 1)}`)
    : Object.entries(value).map(([name, member]) => {
        const start = `${innerIndent}${style.name(name)}: `;
        return `${start}${renderLiteral(member, style, start.length, depth + 1)}`;
      });
  const [openBracket, closeBracket] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const end = `${style.indent.repeat(depth)}${closeBracket}`;
  return `${openBracket}\n${lines.join(',\n')}${style.lastComma}\n${end}`;
}

function oneLine(value: Json, style: Style): string {
  if (typeof value !== 'object' || value === null) return style.scalar(value);
  if (Array.isArray(value)) return `[${value.map((item) => oneLine(item, style)).join(', ')}]`;
  const members = Object.entries(value).map(
    ([name, member]) => `${style.name(name)}: ${oneLine(member, style)}`,
  );
  return members.length === 0 ? '{}' : `{${style.padding}${members.join(', ')}${style.padding}}`;
}
